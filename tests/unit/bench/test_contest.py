"""Several ways of drafting over the same questions."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench_fakes import TREE, MindReader, toy_llm
from medusakit.bench.candidates import static
from medusakit.bench.contest import ContestConfig, run_contest
from medusakit.settings import SamplingParams

PARAMS = SamplingParams(max_tokens=16, seed=0)


@pytest.fixture
def suite(tmp_path: Path) -> str:
    file = tmp_path / "suite.jsonl"
    questions = [{"category": "coding", "turns": ["abc", "de"]}, {"category": "writing", "turns": ["fgh"]}]
    file.write_text("\n".join(map(json.dumps, questions)))
    return str(file)


def test_better_guesses_give_more_tokens_a_step(suite: str) -> None:
    entries = [(name, static(MindReader(right), TREE)) for name, right in (("good", 0.95), ("bad", 0.1))]
    seen: list[tuple[int, int, str]] = []
    contest = run_contest(toy_llm(), entries, ContestConfig(suite, None, PARAMS), lambda *told: seen.append(told))
    good, bad, plain = (contest.summary(name) for name in ("good", "bad", "plain"))
    assert good["tau"] > bad["tau"] > 1.0 == plain["tau"]
    assert good["rho"] > bad["rho"] and plain["rho"] == plain["rho_eff"] == 0.0
    assert contest.categories == ["coding", "writing"]
    assert contest.summary("good", "coding")["tokens"] == 2 * contest.summary("good", "writing")["tokens"] == 30
    assert contest.speedup("good")["by_category"].keys() == {"coding", "writing"}
    assert {pair: (found["turns"], found["equal"]) for pair, found in contest.identical.items()} == {
        "good==plain": (3, 3),
        "bad==plain": (3, 3),
    }
    assert [told[:2] for told in seen] == [(1, 3), (2, 3), (3, 3)] and "tok/s" in seen[-1][2]


def test_speed_over_plain_is_tokens_over_seconds(suite: str) -> None:
    contest = run_contest(toy_llm(), [("x", static(MindReader(0.9), TREE))], ContestConfig(suite, None, PARAMS))
    expected = contest.summary("x")["tokens_per_s"] / contest.summary("plain")["tokens_per_s"]
    assert contest.speedup("x")["ratio"] == pytest.approx(expected)
