"""`medusa compare` and its figures."""

from __future__ import annotations

import json

import pytest

from cli_fakes import FakeLLM, Invoke, scripted_events
from medusakit.cli.pairing import Pair, first_difference, mode_summary, speedup
from medusakit.engine.events import GenerationResult, GenerationStats


def result(tokens: int, steps: int, seconds: float, ids: tuple[int, ...] = ()) -> GenerationResult:
    stats = GenerationStats(num_tokens=tokens, num_steps=steps, num_nodes=8 * steps, forward_s=seconds)
    stats.offered_by_depth, stats.accepted_by_depth = [steps, steps], [steps // 2, 0]
    return GenerationResult("", ids, "stop", 0, True, stats, ())


def test_speed_is_tokens_after_the_first_over_decode_seconds() -> None:
    summary = mode_summary([result(11, 5, 2.0), result(31, 15, 3.0)])
    assert (summary["tokens"], summary["seconds"], summary["tokens_per_s"]) == (40, 5.0, 8.0)
    assert (summary["tau"], summary["nodes_per_step"]) == (2.0, 8.0)
    assert summary["accepted_by_depth"] == pytest.approx([9 / 20, 0.0])
    assert summary["time_split"] == {"forward": 1.0, "draft": 0.0, "other": 0.0}


def test_speedup_weighs_prompts_by_their_time_and_has_an_interval() -> None:
    slow = Pair("a", result(11, 10, 10.0), result(11, 5, 10.0))
    fast = Pair("b", result(11, 10, 10.0), result(11, 5, 2.5))
    found = speedup([slow, fast])
    assert found["ratio"] == pytest.approx(20 / 12.5)
    low, high = found["ci95"]
    assert low == pytest.approx(1.0) and high == pytest.approx(4.0)
    assert speedup([fast])["ci95"] == pytest.approx([4.0, 4.0])


@pytest.mark.parametrize(
    ("plain", "medusa", "expected"),
    [
        ((1, 2, 3), (1, 2, 3), None),
        ((1, 2, 3), (1, 9, 3), (1, 2, 9)),
        ((1, 2), (1, 2, 3), (2, None, 3)),
        ((1, 2, 3), (1, 2), (2, 3, None)),
    ],
)
def test_first_difference(
    plain: tuple[int, ...], medusa: tuple[int, ...], expected: tuple[int, int | None, int | None] | None
) -> None:
    found = first_difference(Pair("x", result(1, 1, 1.0, plain), result(1, 1, 1.0, medusa)))
    assert (found and (found.position, found.plain_id, found.medusa_id)) == expected


def test_document_has_the_keys_of_the_bench(invoke: Invoke, llm: FakeLLM) -> None:
    document = json.loads(invoke("compare", "one", "two", "--json", "-").out)
    keys = {"modes", "speedup", "identical", "weights", "config", "machine", "versions", "model", "seed"}
    assert keys <= set(document)
    assert set(document["modes"]) == {"plain", "medusa"}
    assert document["identical"]["medusa==plain"] == {"turns": 2, "equal": 2, "tied": 0, "first_differences": []}
    assert document["speedup"]["medusa/plain"]["ratio"] == pytest.approx(1.0)


def test_runs_are_interleaved_and_the_order_alternates(invoke: Invoke, llm: FakeLLM) -> None:
    invoke("compare", "one", "two", "--repeat", "2")
    assert [(call["prompt"], call["speculation"]) for call in llm.calls] == [
        ("one", False), ("one", True), ("two", True), ("two", False),
        ("one", False), ("one", True), ("two", True), ("two", False),
    ]  # fmt: skip
    assert {call["params"].seed for call in llm.calls} == {0}
    assert {call["params"].max_tokens for call in llm.calls} == {128}


def test_table_and_verdict(invoke: Invoke, llm: FakeLLM) -> None:
    outcome = invoke("compare", "one", "-n", "5")
    assert "one two three four five" in outcome.out
    assert "speed-up 1.00x with f32 weights" in outcome.out
    assert "1 of 1 answers have the same tokens" in outcome.out
    assert llm.calls[0]["params"].max_tokens == 5


def test_scripted_events_mark_drafted_words() -> None:
    """The fake's own promise, on which the marks rest."""
    assert [event.from_draft for event in scripted_events("a b c d e")] == [False, True, True, False, True]
