"""Answers made many at a time are the ones made alone, and second turns continue plain's."""

from __future__ import annotations

import pytest

from bench_fakes import toy_llm
from medusakit.bench.batches import answer_all, answered_pairs
from medusakit.bench.workloads import Question
from medusakit.settings import SamplingParams
from medusakit.text.chat import chat_ids

GREEDY = SamplingParams(max_tokens=12, seed=0)
QUESTIONS = [Question(str(number), "general", tuple(turns)) for number, turns in enumerate((["abc", "de"], ["fgh"]))]


@pytest.mark.parametrize("speculation", [False, True])
@pytest.mark.parametrize("params", [GREEDY, SamplingParams(max_tokens=12, seed=3, temperature=0.8)])
def test_a_batch_says_what_each_prompt_alone_says(speculation: bool, params: SamplingParams) -> None:
    llm = toy_llm()
    prompts = [llm.tokenizer.encode(text) for text in ("abc", "bcdef", "c", "dab")]
    alone: list[tuple[int, ...]] = []
    for ids in prompts:
        with llm.stream_ids(ids, params, speculation=speculation) as stream:
            for _ in stream:
                pass
            alone.append(stream.result.token_ids)
    ended: list[int] = []
    together = answer_all(llm, prompts, params, speculation=speculation, rows=2, on_end=lambda: ended.append(1))
    assert together == alone and len(ended) == 4
    assert llm.runtime.rows == ()  # type: ignore[attr-defined]


def test_second_turns_continue_plains_answer() -> None:
    llm = toy_llm()
    turns: list[int] = []
    pairs = list(answered_pairs(llm, QUESTIONS, GREEDY, 2, lambda: turns.append(1)))
    assert [pair.where for pair in pairs] == ["0 turn 1", "1 turn 1", "0 turn 2"]
    assert len(turns) == 3 and all(pair.plain == pair.medusa for pair in pairs)
    said = llm.tokenizer.decode([token for token in pairs[0].plain if token not in llm.tokenizer.eos_ids])
    talk = [("user", "abc"), ("assistant", said), ("user", "de")]
    assert pairs[2].prompt_ids == chat_ids(llm.tokenizer, [{"role": role, "content": text} for role, text in talk])


def test_turns_beyond_the_context_are_left_out() -> None:
    llm = toy_llm(max_context=24)
    pairs = list(answered_pairs(llm, [Question("long", "general", ("a" * 40, "b"))], GREEDY, 2, lambda: None))
    assert pairs == []
