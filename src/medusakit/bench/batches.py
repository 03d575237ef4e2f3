"""Many answers at once: rows join and leave a running batch, as requests do. For proofs of equality, where only tokens
count; speeds are measured one request at a time (bench/offline.py).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from medusakit.bench.workloads import Question
from medusakit.engine.controller import PlainController
from medusakit.engine.engine import Engine
from medusakit.engine.session import Session
from medusakit.llm import LLM
from medusakit.settings import SamplingParams
from medusakit.text.chat import conversation_ids


@dataclass(frozen=True, slots=True)
class Pair:
    """One turn answered with and without speculation."""

    where: str
    prompt_ids: list[int]
    plain: tuple[int, ...]
    medusa: tuple[int, ...]


def answered_pairs(
    llm: LLM, questions: Sequence[Question], params: SamplingParams, rows: int, on_turn: Callable[[], None]
) -> Iterator[Pair]:
    """All first turns, then all second turns, which continue *plain's* answers; turns beyond the context are left out.

    on_turn  called for every turn that both modes have answered
    """
    said: list[list[tuple[int, ...]]] = [[] for _ in questions]
    limit = llm.runtime.capabilities.max_context
    for turn in range(max((len(question.turns) for question in questions), default=0)):
        asked: list[tuple[int, list[int]]] = []
        for index, question in enumerate(questions):
            if turn < len(question.turns) and len(said[index]) == turn:
                ids = conversation_ids(llm.tokenizer, question.turns[: turn + 1], said[index])
                if len(ids) < limit:
                    asked.append((index, ids))
        prompts = [ids for _, ids in asked]
        plain = answer_all(llm, prompts, params, speculation=False, rows=rows)
        medusa = answer_all(llm, prompts, params, speculation=True, rows=rows, on_end=on_turn)
        for (index, ids), left, right in zip(asked, plain, medusa, strict=True):
            said[index].append(left)
            yield Pair(f"{questions[index].id} turn {turn + 1}", ids, left, right)


def answer_all(
    llm: LLM,
    prompts: Sequence[Sequence[int]],
    params: SamplingParams,
    *,
    speculation: bool,
    rows: int,
    on_end: Callable[[], None] = lambda: None,
) -> list[tuple[int, ...]]:
    """Token ids of every answer, end of sequence included; at most `rows` prompts are answered at a time."""
    engine = Engine(llm.runtime, llm.tokenizer, llm.parts.speculation.controller if speculation else PlainController())
    waiting = deque(enumerate(prompts))
    running: dict[int, Session] = {}
    answers: dict[int, tuple[int, ...]] = {}
    try:
        while waiting or running:
            while waiting and len(running) < rows:
                index, ids = waiting.popleft()
                running[index] = engine.start(ids, params)
            engine.step()
            for index in [index for index, session in running.items() if not session.running]:
                session = running.pop(index)
                answers[index] = tuple(session.output_ids)
                engine.finish(session)
                on_end()
    finally:
        for session in running.values():
            engine.finish(session)
    return [answers[index] for index in range(len(prompts))]
