"""The grid: which trees are run, who is on the front, and what is written where."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bench_fakes import headed_llm, make_llm, toy_llm
from medusakit.artifact.find import packaged_heads
from medusakit.artifact.io import load_artifact
from medusakit.bench.contest import ContestConfig
from medusakit.bench.grid import GridConfig, check_writable, grid_entries, pareto, run_grid, write_winner
from medusakit.cli.app import _recommended
from medusakit.errors import ArtifactError, UsageError
from medusakit.runtimes.reference import random_reference
from medusakit.settings import SamplingParams

POINT_KEYS = {"depth", "branching", "budget", "tau", "rho_eff", "verify_ms", "speedup"}


@pytest.fixture
def contest(tmp_path: Path) -> ContestConfig:
    file = tmp_path / "suite.jsonl"
    file.write_text("\n".join(json.dumps({"turns": [text]}) for text in ("abc", "de", "fgh", "xyz")))
    return ContestConfig(str(file), None, SamplingParams(max_tokens=40, seed=0, ignore_eos=True))


def point(name: str, verify_ms: float, tau: float) -> dict[str, Any]:
    return {"name": name, "verify_ms": verify_ms, "tau": tau}


def test_the_front_holds_what_nothing_beats() -> None:
    points = [point("d", 4, 2.0), point("a", 1, 1.0), point("c", 3, 1.5), point("b", 2, 1.5), point("e", 4, 1.9)]
    assert [found["name"] for found in pareto(points, "tau")] == ["a", "b", "d"]


def test_dense_trees_of_a_grid_give_more_the_deeper_they_are(contest: ContestConfig) -> None:
    config = GridConfig(contest, depths=(1, 4), branchings=(2,), budgets=())
    document = run_grid(toy_llm(right=0.9), config)
    points = {found["name"]: found for found in document["points"]}
    assert list(points) == ["plain", "1x2", "4x2"]
    assert all(found.keys() >= POINT_KEYS for found in points.values())
    deep, flat, plain = points["4x2"], points["1x2"], points["plain"]
    assert (deep["depth"], deep["branching"], deep["budget"]) == (4, 2, 1 + 2 + 4 + 8 + 16)
    assert (plain["depth"], plain["budget"], plain["tau"], plain["rho_eff"], plain["speedup"]) == (0, 1, 1.0, 0.0, 1.0)
    assert deep["tau"] > flat["tau"] > 1.0
    assert flat["rho_eff"] == pytest.approx(flat["rho"]) == pytest.approx(flat["tau"] - 1, abs=0.05)
    assert deep["rho_eff"] == pytest.approx(1 - (1 - deep["rho"]) ** 4, abs=0.02)  # an answer's last trees are cut
    assert document["best"] == max(points.values(), key=lambda found: found["speedup"])
    assert document["pareto"][-1]["name"] == "4x2"
    json.dumps(document, allow_nan=False)


def test_trees_as_far_as_drafter_and_calibration_go(tmp_path: Path) -> None:
    llm = headed_llm(tmp_path / "heads")  # 3 deep, 5 calibrated nodes
    config = GridConfig(depths=(2, 4), branchings=(2,), budgets=(2, 5, 6), drafter="hydra", threads=1)
    found = [(entry.name, entry.budget, entry.shape) for entry in grid_entries(llm, config)]
    assert found == [
        ("2x2", 7, (2, 2)),
        ("calibrated-2", 2, (1, 1)),
        ("calibrated-5", 5, (3, 2)),
        *((f"dynamic-{budget}", budget, None) for budget in (2, 5, 6)),
    ]


def test_grown_trees_keep_their_budget(tmp_path: Path, contest: ContestConfig) -> None:
    llm = headed_llm(tmp_path / "heads")
    document = run_grid(llm, GridConfig(contest, (), (), (3, 6), drafter="hydra", threads=1))
    points = {found["name"]: found for found in document["points"]}
    assert 2 < points["dynamic-3"]["nodes_per_step"] <= 3 < points["dynamic-6"]["nodes_per_step"] <= 6
    assert points["dynamic-6"]["depth"] >= points["dynamic-3"]["depth"] >= 1
    assert all(pair["equal"] == pair["turns"] for pair in document["identical"].values())


def test_no_drafter_or_no_tree(contest: ContestConfig) -> None:
    with pytest.raises(UsageError, match="needs a drafter"):
        run_grid(make_llm(random_reference(0, 23)), GridConfig(contest))
    with pytest.raises(UsageError, match="no tree to run"):
        run_grid(toy_llm(), GridConfig(contest, depths=(20,), branchings=(1,), budgets=()))


@pytest.mark.parametrize(
    ("best", "settings"),
    [
        ({"name": "2x3", "kind": "dense", "budget": 13}, {"tree": "2x3"}),
        ({"name": "calibrated-4", "kind": "calibrated", "budget": 4}, {"budget": 4, "dynamic_tree": False}),
        ({"name": "dynamic-6", "kind": "dynamic", "budget": 6}, {"budget": 6}),
        ({"name": "plain", "kind": "plain", "budget": 1}, {"budget": 1}),
    ],
)
def test_the_winner_is_what_the_heads_recommend(tmp_path: Path, best: dict[str, Any], settings: dict[str, Any]) -> None:
    folder = tmp_path / "heads"
    headed_llm(folder)
    (folder / "notes.txt").write_text("mine")
    before = load_artifact(folder)
    found = best | {"tau": 2.0, "rho_eff": 0.5, "verify_ms": 20.0, "speedup": 1.5}
    document = {"best": found, "weights": "f32", "machine": {"cpu": "a cpu"}}
    assert write_winner(before, document) == settings
    after = load_artifact(folder)
    assert _recommended(folder / "medusa.json") == settings
    assert after.manifest.provenance.metrics["grid"]["speedup"] == 1.5
    assert (after.tree, after.manifest.files) == (before.tree, before.manifest.files)
    assert "defaults" in (folder / "README.md").read_text() and (folder / "notes.txt").read_text() == "mine"
    again = found | {"name": "plain", "kind": "plain", "budget": 1}
    assert write_winner(after, document | {"best": again}) == {"budget": 1} == _recommended(folder / "medusa.json")


def test_heads_that_were_replaced_meanwhile_are_left_alone(tmp_path: Path) -> None:
    measured = headed_llm(tmp_path / "heads").parts.artifact
    headed_llm(tmp_path / "heads", shares=(0.9,))
    assert measured is not None
    with pytest.raises(ArtifactError, match="replaced while the grid ran"):
        write_winner(measured, {"best": {}, "weights": "f32", "machine": {"cpu": ""}})


def test_where_nothing_may_be_written(tmp_path: Path) -> None:
    check_writable(str(tmp_path))
    for heads in ("auto", "none"):
        with pytest.raises(UsageError, match="--write needs the heads' folder"):
            check_writable(heads)
    with pytest.raises(UsageError, match="belongs to the package"):
        check_writable(str(packaged_heads() / "hydra"))
