"""`medusa bench drafters` and `medusa bench grid`: what reaches the bench, and how its documents are shown."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cli_fakes import FakeLLM, Invoke
from medusakit.bench import drafters, grid
from medusakit.cli.measured import numbers, shares
from medusakit.errors import UsageError

SAME = {"x==plain": {"turns": 4, "equal": 4, "tied": 0, "different": 0}}
PARTED = {"x==plain": {"turns": 4, "equal": 3, "tied": 0, "different": 1}}
ROW: dict[str, Any] = {
    "family": "hydra", "params": 3_699_200, "bytes": 7_400_000, "draft_ms": 1.5, "nodes_per_step": 8.0, "tau": 2.1,
    "rho": 0.4, "rho_eff": 0.8, "tokens_per_s": 60.0, "speedup": 1.5, "ci95": [1.4, 1.6],
    "by_category": {"coding": {"tau": 2.5, "speedup": 1.8}, "writing": {"tau": 1.9, "speedup": 1.3}},
}  # fmt: skip
SUFFIX = ROW | {"family": "suffix", "params": 0, "bytes": 0, "tau": 1.4, "speedup": 1.1}
TABLE: dict[str, Any] = {
    "drafters": {"suffix": SUFFIX, "hydra": ROW},
    "degraded": [{"noise": 0.0, **ROW}, {"noise": 0.5, **ROW, "tau": 1.2, "speedup": 0.9}],
    "plain": {"tokens_per_s": 40.0},
    "identical": SAME,
    "weights": "f32",
}


def point(name: str, kind: str, verify_ms: float, tau: float, speedup: float) -> dict[str, Any]:
    figures = {"verify_ms": verify_ms, "draft_ms": 1.0, "tau": tau, "rho": 0.5, "rho_eff": 0.75, "speedup": speedup}
    return {"name": name, "kind": kind, "depth": 2, "nodes_per_step": 7.0, "ci95": [1.0, 2.0], **figures}


PLAIN, DENSE, WIDE = (
    point("plain", "plain", 20, 1.0, 1.0), point("2x2", "dense", 30, 2.0, 1.4), point("2x4", "dense", 50, 1.9, 0.8)
)  # fmt: skip
GRID: dict[str, Any] = {
    "points": [PLAIN, DENSE, WIDE], "pareto": [PLAIN, DENSE], "pareto_rho_eff": [PLAIN, DENSE], "best": DENSE,
    "identical": SAME, "weights": "f32",
}  # fmt: skip


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What the bench was called with; the documents above come back."""
    found: dict[str, Any] = {}

    def answering(document: dict[str, Any]) -> Callable[..., dict[str, Any]]:
        def run(llm: object, config: object, on_turns: Callable[[int, int, str], None]) -> dict[str, Any]:
            found["config"] = config
            on_turns(1, 4, "hydra 60.0 tok/s, plain 40.0")
            return dict(document)

        return run

    monkeypatch.setattr(drafters, "run_drafters", answering(TABLE))
    monkeypatch.setattr(grid, "run_grid", answering(GRID))
    return found


def test_drafters_as_a_table(invoke: Invoke, llm: FakeLLM, seen: dict[str, Any]) -> None:
    outcome = invoke(
        "bench", "drafters", "./mine", "--budget", "16", "--only", "suffix", "--degrade", "1,0.5", "--limit", "2"
    )
    assert outcome.code == 0, outcome.err
    config = seen["config"]
    assert (config.folders, config.names, config.strengths, config.budget) == (("./mine",), ("suffix",), (0.5, 1.0), 16)
    assert (config.contest.limit, config.contest.params.max_tokens, config.contest.params.seed) == (2, 128, 0)
    assert "hydra 60.0 tok/s" in outcome.err
    lines = outcome.out.splitlines()
    rank = {name: place for place, line in enumerate(lines) for name in ("hydra", "suffix") if line.startswith(name)}
    assert rank["hydra"] < rank["suffix"]  # the fastest first
    assert "3,699,200" in outcome.out and "7.4" in outcome.out and "1.80x (2.50)" in outcome.out
    assert "4 of 4 answers equal plain's" in outcome.out


def test_an_answer_that_parts_is_said_loudly(
    invoke: Invoke, llm: FakeLLM, seen: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drafters, "run_drafters", lambda *_: TABLE | {"identical": PARTED})
    assert "DIFFERENT: x==plain" in invoke("bench", "drafters").out


def test_grid_as_a_table_and_pictures(invoke: Invoke, llm: FakeLLM, seen: dict[str, Any], tmp_path: Path) -> None:
    words = ("--depths", "3,2", "--branchings", "2", "--budgets", "", "--plots", str(tmp_path))
    outcome = invoke("bench", "grid", *words)
    assert outcome.code == 0, outcome.err
    config = seen["config"]
    assert (config.depths, config.branchings, config.budgets) == ((2, 3), (2,), ())
    dense, wide = (next(line for line in outcome.out.splitlines() if line.startswith(name)) for name in ("2x2", "2x4"))
    assert "tau rho_eff" in dense and "tau" not in wide
    assert "best: 2x2, 1.40x with f32 weights" in outcome.out
    assert (tmp_path / "pareto.svg").is_file()


def test_the_winner_is_written_only_where_asked(
    invoke: Invoke, llm: FakeLLM, seen: dict[str, Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    written: list[object] = []
    monkeypatch.setattr(grid, "write_winner", lambda artifact, document: written.append(artifact) or {"tree": "2x2"})
    llm.heads = True
    assert "recommend" not in invoke("bench", "grid", "--heads", str(tmp_path)).out
    assert "the heads recommend now: tree 2x2" in invoke("bench", "grid", "--heads", str(tmp_path), "--write").out
    assert len(written) == 1
    refused = invoke("bench", "grid", "--write")
    assert refused.code == 2 and "--heads ./heads --write" in refused.err and len(written) == 1


@pytest.mark.parametrize("words", [("--depths", "2,x"), ("--branchings", "0"), ("--budgets", "1")])
def test_lists_of_a_grid_are_checked(invoke: Invoke, llm: FakeLLM, words: tuple[str, str]) -> None:
    outcome = invoke("bench", "grid", *words)
    assert outcome.code == 2 and words[0] in outcome.err


def test_lists() -> None:
    assert numbers(" 4, 2,2 ", "--x", low=1) == (2, 4)
    assert shares("1,0.25", "--x") == (0.25, 1.0)
    for text in ("-1", "nan", "inf", "much"):
        with pytest.raises(UsageError, match="--x"):
            shares(text, "--x")


def test_no_system_message(invoke: Invoke, llm: FakeLLM, seen: dict[str, Any]) -> None:
    assert invoke("bench", "grid", "-s", "be brief").code == 2
    assert "config" not in seen
