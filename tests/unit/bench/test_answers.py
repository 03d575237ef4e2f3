"""Modes give the same shape of answer; the prefill's token and time stand apart."""

from __future__ import annotations

from bench_fakes import toy_llm
from medusakit.bench.answers import Answer, EngineMode
from medusakit.engine.events import GenerationResult, GenerationStats
from medusakit.settings import SamplingParams

PARAMS = SamplingParams(max_tokens=20, seed=0)


def test_an_answer_is_the_result_without_its_prefill() -> None:
    stats = GenerationStats(num_prompt_tokens=9, num_tokens=4, num_steps=2, num_nodes=12)
    stats.prefill_s, stats.forward_s, stats.draft_s, stats.other_s = 5.0, 0.5, 0.25, 0.125
    stats.offered_by_depth, stats.accepted_by_depth = [2, 2], [1, 0]
    made = Answer.of(GenerationResult("abcd", (1, 2, 3, 4), "length", None, True, "greedy", stats))
    assert (made.tokens, made.steps, made.nodes, made.prefill_s) == (3, 2, 12, 5.0)
    assert made.decode_s == 0.875
    assert (made.offered, made.accepted) == ((2, 2), (1, 0))


def test_an_answer_of_one_token_decoded_nothing() -> None:
    stats = GenerationStats(num_tokens=1)
    made = Answer.of(GenerationResult("a", (1,), "stop", None, True, "greedy", stats))
    assert (made.tokens, made.decode_s) == (0, 0.0)


def test_both_modes_of_the_engine_say_the_same_in_fewer_steps() -> None:
    llm = toy_llm(right=0.9)
    plain = EngineMode(llm, speculation=False)
    medusa = EngineMode(llm, speculation=True)
    assert (plain.name, medusa.name) == ("plain", "medusa")
    slow, fast = (mode.answer([1, 2, 3], PARAMS) for mode in (plain, medusa))
    assert slow.token_ids == fast.token_ids and len(slow.token_ids) == 20
    assert slow.steps == slow.nodes == slow.tokens == 19
    assert fast.steps < slow.steps and fast.nodes > fast.steps
    assert slow.passes == tuple((1, 4 + place) for place in range(19))
    assert len(fast.passes) == fast.steps and sum(nodes for nodes, _ in fast.passes) == fast.nodes
    assert llm.runtime.rows == ()
