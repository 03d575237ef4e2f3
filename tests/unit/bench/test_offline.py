"""The protocol of the bench: who answers what, in which order, and what the document says."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from bench_fakes import make_llm, toy_llm
from engine_fakes import LetterTokenizer
from medusakit.bench.answers import Answer
from medusakit.bench.offline import OfflineConfig, OfflineProgress, make_modes, run_offline
from medusakit.bench.turns import answered_turns
from medusakit.bench.workloads import Question
from medusakit.errors import UsageError
from medusakit.llm import LLM
from medusakit.runtimes.reference import random_reference
from medusakit.settings import SamplingParams

PARAMS = SamplingParams(max_tokens=12, seed=0)
ISSUE_KEYS = {"modes", "speedup", "identical", "weights", "config", "machine", "versions", "model", "seed"}
MODE_KEYS = {"tokens", "seconds", "tokens_per_s", "tau", "nodes_per_step", "accepted_by_depth", "time_split"}


@dataclass
class Parrot:
    """A mode that always says the same and writes down what it was asked."""

    name: str
    says: str
    asked: list[str] = field(default_factory=list)
    order: list[str] = field(default_factory=list)

    def answer(self, ids: Sequence[int], params: SamplingParams) -> Answer:
        self.asked.append(LetterTokenizer().decode(ids))
        self.order.append(self.name)
        return Answer(tuple(LetterTokenizer().encode(self.says)), self.says, 1, 1, 0.0, 1.0, 0.0, 0.0)


def parrots(order: list[str]) -> list[Parrot]:
    return [Parrot("plain", "pp", order=order), Parrot("medusa", "mm", order=order), Parrot("hf", "hh", order=order)]


@pytest.fixture
def suite(tmp_path: Path) -> str:
    questions = [
        {"question_id": 1, "category": "coding", "turns": ["abc", "de"]},
        {"question_id": 2, "category": "writing", "turns": ["fgh"]},
        {"question_id": 3, "category": "writing", "turns": ["kl", "mn"]},
    ]
    file = tmp_path / "suite.jsonl"
    file.write_text("\n".join(map(json.dumps, questions)))
    return str(file)


def test_the_second_turn_continues_the_first_answer_of_plain() -> None:
    llm = toy_llm()
    modes = parrots([])
    questions = [Question("1", "all", ("a", "b", "c"))]
    turns = list(answered_turns(llm, modes, questions, PARAMS))
    for mode in modes:
        assert mode.asked[1:] == ["a", "appb", "appbppc"]  # the first is the warm-up
    assert [LetterTokenizer().decode(ids) for _, ids, _ in turns] == ["a", "appb", "appbppc"]
    assert [turn.turn for turn, _, _ in turns] == [0, 1, 2]


def test_who_goes_first_rotates() -> None:
    order: list[str] = []
    questions = [Question("1", "all", ("a", "b")), Question("2", "all", ("c", "d"))]
    list(answered_turns(toy_llm(), parrots(order), questions, PARAMS))
    assert order[:3] == ["plain", "medusa", "hf"]  # the warm-up
    rounds = [order[at : at + 3] for at in range(3, len(order), 3)]
    assert [names[0] for names in rounds] == ["plain", "medusa", "hf", "plain"]
    assert all(sorted(names) == ["hf", "medusa", "plain"] for names in rounds)


def test_turns_that_do_not_fit_the_context_are_left_out() -> None:
    questions = [Question("1", "all", ("a", "b" * 20)), Question("2", "all", ("c",))]
    found = [turn for turn, _, _ in answered_turns(toy_llm(max_context=16), parrots([]), questions, PARAMS)]
    assert [(turn.group, turn.turn) for turn in found] == [("1", 0), ("2", 0)]


def test_the_document_of_a_run(suite: str) -> None:
    seen: list[OfflineProgress] = []
    document = run_offline(toy_llm(right=0.8), OfflineConfig(suite, params=PARAMS), seen.append)
    assert document.keys() >= ISSUE_KEYS
    assert all(mode.keys() >= MODE_KEYS for mode in document["modes"].values())
    plain, medusa = document["modes"]["plain"], document["modes"]["medusa"]
    assert plain["tokens"] == medusa["tokens"] == 5 * 11
    assert (plain["tau"], plain["nodes_per_step"], plain["accepted_by_depth"]) == (1.0, 1.0, [])
    assert medusa["tau"] > 1.2 and len(medusa["accepted_by_depth"]) == 3
    assert sum(medusa["time_split"].values()) == pytest.approx(1.0)
    equal = document["identical"]["medusa==plain"]
    assert (equal["turns"], equal["equal"], equal["tied"], equal["first_differences"]) == (5, 5, 0, [])
    assert document["speedup"]["medusa/plain"]["by_category"].keys() == {"coding", "writing"}
    assert document["by_category"]["coding"]["medusa"]["tau"] > 1.0
    assert (document["weights"], document["seed"], document["lossless"]) == ("f32", 0, True)
    assert [progress.done for progress in seen] == [1, 2, 3, 4, 5]
    assert seen[0].total == 5 and seen[-1].tokens_per_s.keys() == {"plain", "medusa"}
    json.dumps(document, allow_nan=False)


def test_a_sampled_run_says_the_same_too(suite: str) -> None:
    params = SamplingParams(max_tokens=12, temperature=0.8, seed=4)
    document = run_offline(toy_llm(right=0.8), OfflineConfig(suite, params=params))
    assert document["identical"]["medusa==plain"]["equal"] == 5


def test_a_wrong_mask_shows_as_different(suite: str) -> None:
    """Node 2 sees its sibling: where the second guess is right, what follows it is wrong."""
    llm = toy_llm(right=0.9, leak=(2, 1))
    document = run_offline(llm, OfflineConfig(suite, params=SamplingParams(max_tokens=60, seed=0)))
    found = document["identical"]["medusa==plain"]
    assert found["equal"] < found["turns"]
    assert all(entry["gap"] > 1e-3 and not entry["tied"] for entry in found["first_differences"])


def test_limit_spreads_over_categories(suite: str) -> None:
    document = run_offline(toy_llm(), OfflineConfig(suite, limit=2, params=PARAMS))
    assert document["speedup"]["medusa/plain"]["by_category"].keys() == {"coding", "writing"}
    assert document["modes"]["plain"]["answers"] == 3


def bare_llm() -> LLM:
    return make_llm(random_reference(0, 23))


def test_plain_is_always_the_baseline() -> None:
    assert [mode.name for mode in make_modes(toy_llm(), OfflineConfig(modes=("medusa",)))] == ["plain", "medusa"]
    assert [mode.name for mode in make_modes(bare_llm(), OfflineConfig(modes=("plain",)))] == ["plain"]


def test_modes_that_cannot_be_run_are_refused() -> None:
    with pytest.raises(UsageError, match="turbo"):
        make_modes(toy_llm(), OfflineConfig(modes=("plain", "turbo")))
    with pytest.raises(UsageError, match="no mode"):
        make_modes(toy_llm(), OfflineConfig(modes=()))
    with pytest.raises(UsageError, match="heads"):
        make_modes(bare_llm(), OfflineConfig())
    with pytest.raises(UsageError, match="greedy"):
        make_modes(toy_llm(), OfflineConfig(modes=("plain", "hf"), params=SamplingParams(temperature=0.8)))


def test_a_suite_that_fits_nowhere_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "long.jsonl"
    file.write_text(json.dumps({"turns": ["a" * 40]}))
    with pytest.raises(UsageError, match="16 tokens"):
        run_offline(toy_llm(max_context=16), OfflineConfig(str(file), params=PARAMS))
