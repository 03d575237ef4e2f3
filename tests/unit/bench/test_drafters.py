"""The table of drafters and what worse heads cost."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from bench_fakes import headed_llm
from medusakit.bench import candidates
from medusakit.bench.contest import ContestConfig
from medusakit.bench.drafters import DraftersConfig, run_drafters
from medusakit.errors import UsageError
from medusakit.llm import LLM
from medusakit.settings import SamplingParams

KEYS = {"params", "bytes", "draft_ms", "tau", "speedup", "by_category"}


@pytest.fixture
def llm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LLM:
    found = headed_llm(tmp_path / "heads")
    monkeypatch.setattr(candidates, "fitting_heads", lambda *_: iter([(tmp_path / "heads", "hydra")]))
    return found


@pytest.fixture
def contest(tmp_path: Path) -> ContestConfig:
    file = tmp_path / "suite.jsonl"
    questions = [{"category": "coding", "turns": ["abc"]}, {"category": "writing", "turns": ["fgh"]}]
    file.write_text("\n".join(map(json.dumps, questions)))
    return ContestConfig(str(file), None, SamplingParams(max_tokens=60, seed=0, ignore_eos=True))


def test_every_drafter_has_its_row(llm: LLM, contest: ContestConfig) -> None:
    document = run_drafters(llm, DraftersConfig(contest, budget=4, threads=1))
    rows = document["drafters"]
    assert list(rows) == ["hydra", "suffix", "recycling", "hybrid"]
    assert all(row.keys() >= KEYS for row in rows.values())
    assert rows["hydra"]["params"] == rows["hybrid"]["params"] > 0 == rows["suffix"]["params"]
    assert rows["hydra"]["draft_ms"] > 0
    assert all(row["by_category"].keys() == {"coding", "writing"} for row in rows.values())
    assert rows["suffix"]["tau"] > 1.1  # a toy model repeats itself
    assert all(pair["equal"] == pair["turns"] == 2 for pair in document["identical"].values())
    assert document["degraded"] == []
    json.dumps(document, allow_nan=False)


def test_heads_with_noise_stand_beside_the_unharmed(llm: LLM, contest: ContestConfig) -> None:
    config = DraftersConfig(contest, names=("suffix",), strengths=(2.0, 0.5), budget=4, threads=1)
    document = run_drafters(llm, config)
    assert list(document["drafters"]) == ["suffix"]
    assert [row["noise"] for row in document["degraded"]] == [0.0, 0.5, 2.0]
    assert {row["params"] for row in document["degraded"]} == {3 * 48 + 48 * 32 + 16 * 24}
    assert all(row["nodes_per_step"] == pytest.approx(4, abs=0.2) for row in document["degraded"])


def test_what_cannot_be_meant(llm: LLM, contest: ContestConfig) -> None:
    with pytest.raises(UsageError, match="no drafter 'sufix' works here; there are: hydra, suffix, recycling, hybrid"):
        run_drafters(llm, DraftersConfig(contest, names=("sufix",), budget=4))
    bare = LLM(replace(llm.parts, artifact=None))
    with pytest.raises(UsageError, match="no heads to degrade"):
        run_drafters(bare, DraftersConfig(contest, strengths=(0.1,), budget=4))
