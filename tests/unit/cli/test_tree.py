"""`medusa tree` on a scripted model with a small calibrated tree."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cli_fakes import FakeLLM, Invoke
from medusakit.artifact.schema import CalibratedTree, TreeNode
from medusakit.cli import tree
from medusakit.cli.app import App
from medusakit.tree.cost import Budget, StepCost
from medusakit.tree.topology import Topology

NODES = (((0,), 0.6), ((0, 0), 0.3), ((1,), 0.2))


class Artifact:
    """The parts of an artifact that are shown."""

    tree = CalibratedTree(nodes=tuple(TreeNode(path=path, acceptance=share) for path, share in NODES), num_positions=9)
    manifest = SimpleNamespace(drafter=SimpleNamespace(family="hydra"), backbone=SimpleNamespace(name="a model"))

    def topology(self, num_nodes: int) -> Topology:
        return Topology.from_rank_paths(path for path, _ in NODES[: num_nodes - 1])


def with_heads(monkeypatch: pytest.MonkeyPatch, budget: Budget | None, topology: Topology) -> None:
    llm = FakeLLM()
    runtime = SimpleNamespace(capabilities=SimpleNamespace(weights="f32"), spec=SimpleNamespace(hidden_size=8))
    speculation = SimpleNamespace(budget=budget, topology=topology, drafter="x")
    cost = StepCost.single({1: 0.010, 4: 0.012})
    parts = SimpleNamespace(artifact=Artifact(), speculation=speculation, cost=cost)
    loaded: Any = SimpleNamespace(parts=parts, runtime=runtime, chat=llm.chat)
    monkeypatch.setattr(App, "load", lambda self, **_: loaded)
    monkeypatch.setattr("medusakit.engine.measure.measure_draft", lambda *arguments, **named: 0.001)


def test_show_draws_nodes_with_their_acceptance(
    invoke: Invoke, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with_heads(monkeypatch, Budget(4, 2.1, 0.013, 1.62), Artifact().topology(4))
    svg = tmp_path / "tree.svg"
    outcome = invoke("tree", "show", "--svg", str(svg))
    assert "60.0%" in outcome.out and "expected tau 2.10" in outcome.out
    assert "1.62x of plain decoding" in outcome.out
    assert svg.read_text().startswith("<svg")
    assert "60.0%" in svg.read_text()


def test_show_as_json(invoke: Invoke, monkeypatch: pytest.MonkeyPatch) -> None:
    with_heads(monkeypatch, Budget(4, 2.1, 0.013, 1.62), Artifact().topology(4))
    document = json.loads(invoke("tree", "show", "--json", "-").out)
    assert document["num_nodes"] == 4
    assert document["nodes"][1] == {"path": [0, 0], "acceptance": 0.3}
    assert document["expected"]["tau"] == 2.1


def test_show_where_no_tree_pays_draws_it_all_the_same(invoke: Invoke, monkeypatch: pytest.MonkeyPatch) -> None:
    with_heads(monkeypatch, Budget(1, 1.0, 0.010, 1.0), Topology.chain(0))
    outcome = invoke("tree", "show")
    assert "(0,0)" in outcome.out
    assert "decoding is plain here" in outcome.out


def test_an_uncalibrated_tree_has_no_shares(invoke: Invoke, monkeypatch: pytest.MonkeyPatch) -> None:
    with_heads(monkeypatch, None, Topology.dense([2, 2]))
    outcome = invoke("tree", "show")
    assert "%" not in outcome.out
    assert "given, not chosen" in outcome.out


@pytest.mark.parametrize("way", ["flag", "variable"])
def test_a_dense_tree_is_drawn_without_a_model(
    invoke: Invoke, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, way: str
) -> None:
    monkeypatch.setattr(App, "load", lambda self, **_: pytest.fail("a model was loaded"))
    words = ["--tree", "2x3"] if way == "flag" else []
    if way == "variable":
        monkeypatch.setenv("MEDUSA_TREE", "2x3")
    svg = tmp_path / "tree.svg"
    outcome = invoke("tree", "show", *words, "-m", "no-such-model", "--svg", str(svg))
    assert outcome.code == 0
    assert "13 rows · depth 2 · 9 leaves" in outcome.out and "(2,2)" in outcome.out
    assert "tree 2x3" in svg.read_text()
    cut = json.loads(invoke("tree", "show", *words, "--budget", "5", "--json", "-").out)
    assert [node["path"] for node in cut["nodes"]] == [[0], [1], [2], [0, 0]]


def test_a_tree_that_is_none_is_refused(invoke: Invoke, llm: FakeLLM) -> None:
    outcome = invoke("tree", "show", "--tree", "wide")
    assert outcome.code == 2
    assert "--tree wide is neither auto, dynamic, static, nor DxB, nor a file" in outcome.err
    assert "try: --tree 2x3" in outcome.err


def test_search_compares_budgets(invoke: Invoke, monkeypatch: pytest.MonkeyPatch) -> None:
    with_heads(monkeypatch, None, Artifact().topology(4))
    document = json.loads(invoke("tree", "search", "--json", "-").out)
    assert [budget["num_nodes"] for budget in document["budgets"]] == [1, 2, 3, 4]
    assert document["best"]["num_nodes"] == 4
    assert document["budgets"][3]["tau"] == pytest.approx(2.1)
    assert document["draft_ms"] == pytest.approx(1.0)
    table = invoke("tree", "search").out
    assert "best" in table and "2.10" in table


def test_without_heads_there_is_no_tree(invoke: Invoke, llm: FakeLLM) -> None:
    outcome = invoke("tree", "show")
    assert outcome.code == 3
    assert "medusa train all -m smollm2" in outcome.err


def test_acceptance_is_none_if_any_node_was_not_calibrated() -> None:
    artifact: Any = Artifact()
    assert tree.acceptance_of(artifact, Topology.dense([3])) is None
    assert tree.acceptance_of(artifact, Topology.chain(2)) == [0.6, 0.3]
