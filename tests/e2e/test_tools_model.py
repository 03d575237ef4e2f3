"""The measuring commands on the real model: that they run and say what their documents promise, not how fast it is."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from medusakit.artifact.find import packaged_heads
from medusakit.cli.app import _recommended

pytestmark = pytest.mark.model
MEDUSA = str(Path(sys.executable).parent / "medusa")


def document(*words: str) -> Any:
    done = subprocess.run([MEDUSA, *words, "--json", "-"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def equal(report: Any) -> bool:
    return all(pair["different"] == 0 for pair in report["identical"].values())


def test_grid_writes_its_winner(tmp_path: Path) -> None:
    heads = tmp_path / "heads"
    shutil.copytree(packaged_heads() / "hydra", heads)
    trees = ("--depths", "2,4", "--branchings", "2", "--budgets", "4")
    report = document("bench", "grid", "--heads", str(heads), *trees, "--limit", "1", "-n", "24", "--write")
    points = {point["name"]: point for point in report["points"]}
    assert {"plain", "2x2", "4x2", "calibrated-4", "dynamic-4"} <= points.keys()
    assert points["4x2"]["verify_ms"] > points["plain"]["verify_ms"] > 0
    assert points["4x2"]["tau"] > 1.2
    assert _recommended(heads / "medusa.json") == report["written"]
    assert equal(report)


def test_drafters_side_by_side() -> None:
    words = ("--limit", "2", "-n", "48", "--budget", "16", "--degrade", "4")
    report = document("bench", "drafters", *words)
    rows = report["drafters"]
    assert {"hydra", "medusa", "suffix", "recycling", "hybrid"} <= rows.keys()
    assert rows["hydra"]["tau"] > rows["medusa"]["tau"] > 1.0
    good, bad = report["degraded"]
    assert good["tau"] == pytest.approx(rows["hydra"]["tau"], rel=0.1) and bad["tau"] < 0.8 * good["tau"]
    assert equal(report)


def test_adversarial_requests_are_hard_and_answered_the_same() -> None:
    words = ("--suite", "adversarial", "--drafter", "hydra", "--limit", "3", "-n", "24", "--budget", "8")
    report = document("bench", "offline", *words)
    assert report["by_category"].keys() == {"random-ids", "high-temperature", "random-heads"}
    assert report["by_category"]["random-heads"]["medusa"]["tau"] < 1.2
    assert equal(report)


def test_profile_suggests_a_budget(tmp_path: Path) -> None:
    log = tmp_path / "requests.jsonl"
    log.write_text("\n".join(json.dumps({"prompt_tokens": 90, "output_tokens": n}) for n in range(1, 101)))
    report = document("profile", str(log))
    assert report["output_tokens"]["p95"] == 95
    assert report["suggestion"]["max_context"] == 256 and report["suggestion"]["budget"] >= 1
