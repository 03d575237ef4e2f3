"""Turns answered by several modes, one after the other in one process: the way every comparison here is made.

Protocol: the model's own chat template, no added system prompt; the second turn continues *plain's* first answer in
every mode; end of sequence counts as a token; which mode goes first rotates.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from medusakit.bench.answers import Answer, Mode
from medusakit.bench.equality import Difference, judge_difference
from medusakit.bench.summary import Turn, mode_summary
from medusakit.bench.workloads import Question
from medusakit.errors import UsageError
from medusakit.llm import LLM
from medusakit.settings import SamplingParams
from medusakit.text.chat import chat_ids

Differences = dict[str, list[Difference | None]]


class Asked(NamedTuple):
    """A turn that every mode has answered, with what was asked."""

    turn: Turn
    ids: list[int]
    params: SamplingParams


def answered_turns(
    llm: LLM, modes: Sequence[Mode], questions: Sequence[Question], params: SamplingParams
) -> Iterator[Asked]:
    """Every turn of the questions that fits the context. modes: plain is one of them."""
    warm_up(llm, modes)
    limit = llm.runtime.capabilities.max_context
    count = 0
    for question in questions:
        messages: list[dict[str, str]] = []
        for number, text in enumerate(question.turns):
            messages.append({"role": "user", "content": text})
            ids = chat_ids(llm.tokenizer, messages)
            if len(ids) >= limit:
                break
            answers = rotated(modes, count, ids, params)
            count += 1
            messages.append({"role": "assistant", "content": answers["plain"].text})
            yield Asked(Turn(question.id, question.category, number, answers), ids, params)


def rotated(modes: Sequence[Mode], count: int, ids: Sequence[int], params: SamplingParams) -> dict[str, Answer]:
    """The answers of all modes to one prompt; the mode at place `count` (modulo their number) goes first."""
    start = count % len(modes)
    return {mode.name: mode.answer(ids, params) for mode in (*modes[start:], *modes[:start])}


def warm_up(llm: LLM, modes: Sequence[Mode]) -> None:
    """A short answer in every mode, unmeasured: first passes allocate memory."""
    ids = chat_ids(llm.tokenizer, [{"role": "user", "content": "Count to ten."}])
    for mode in modes:
        mode.answer(ids, SamplingParams(max_tokens=8, ignore_eos=True))


def collect(
    llm: LLM, modes: Sequence[Mode], asked: Iterable[Asked], on_turns: Callable[[Sequence[Turn]], None]
) -> tuple[list[Turn], Differences]:
    """All turns, and per mode but the first (plain) where its answers part from plain's.

    on_turns  called after every turn with all turns so far
    Raises UsageError where there is no turn at all: no question fits the context.
    """
    turns: list[Turn] = []
    differences: Differences = {f"{mode.name}==plain": [] for mode in modes[1:]}
    for turn, ids, params in asked:
        turns.append(turn)
        where = f"{turn.group} turn {turn.turn + 1}"
        plain = turn.answers["plain"].token_ids
        for mode in modes[1:]:
            other = turn.answers[mode.name].token_ids
            differences[f"{mode.name}==plain"].append(judge_difference(llm, where, ids, plain, other, params))
        on_turns(turns)
    if not turns:
        limit = llm.runtime.capabilities.max_context
        raise UsageError(f"no question fits the context of {limit} tokens", hint="a larger --max-context")
    return turns, differences


def speeds(turns: Sequence[Turn]) -> dict[str, float]:
    """Tokens per second of every mode so far."""
    return {name: mode_summary([turn.answers[name] for turn in turns])["tokens_per_s"] for name in turns[0].answers}
