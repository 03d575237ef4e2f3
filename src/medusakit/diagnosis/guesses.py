"""How often a drafter's next guess is right along the model's own answers, and what it would be right about instead.

A trace is a greedy answer with the hidden states that chose its tokens. At place j the root is gen[j], and the first
guess should be gen[j + 1] (drafters/base.py). Guesses that are right about another token show how heads were trained.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from medusakit.drafters.base import Drafter, DraftState
from medusakit.runtimes.base import Runtime
from medusakit.tree.topology import FloatArray, IntArray, Topology, Tree

SHIFTS = (-1, 0, 1, 2)
ID_OFFSETS = tuple(range(-4, 5))
_NONE = -1
Change = Callable[[FloatArray], FloatArray]


@dataclass(frozen=True, slots=True)
class Trace:
    """ids: prompt and answer. hidden [G, d] float32: row j chose gen[j]."""

    ids: tuple[int, ...]
    prompt_len: int
    hidden: FloatArray

    @property
    def gen(self) -> tuple[int, ...]:
        return self.ids[self.prompt_len :]


@dataclass(frozen=True, slots=True)
class Guesses:
    """Of N places. tokens [N]: the first guess. around [N, len(SHIFTS)]: what the answer says at each shift, -1 past
    its ends."""

    tokens: IntArray
    around: IntArray

    @property
    def num(self) -> int:
        return len(self.tokens)

    def rate(self, shift: int = 0) -> float:
        """Share of guesses that are the token `shift` places after the right one."""
        labels = self.around[:, SHIFTS.index(shift)]
        known = labels != _NONE
        return float((self.tokens == labels)[known].mean()) if known.any() else 0.0

    def id_rate(self, offset: int) -> float:
        """Share of guesses whose id is the right one plus `offset`."""
        return float((self.tokens - offset == self.around[:, SHIFTS.index(0)]).mean()) if self.num else 0.0


def answer(runtime: Runtime, prompts: Sequence[Sequence[int]], eos_ids: frozenset[int], length: int) -> list[Trace]:
    """Greedy answers to all prompts at once, each of at most `length` tokens."""
    rows = [runtime.add_row() for _ in prompts]
    gens: list[list[int]] = [[] for _ in rows]
    states: list[list[FloatArray]] = [[] for _ in rows]
    for place, row in enumerate(rows):
        scores = runtime.prefill(row, prompts[place])
        gens[place].append(scores.argmax(0))
        states[place].append(scores.hidden(0).copy())
    for _ in range(length - 1):
        trees = [(row, Tree.plain(gen[-1])) for row, gen in zip(rows, gens, strict=True)]
        for place, scores in enumerate(runtime.forward(trees)):
            gens[place].append(scores.argmax(0))
            states[place].append(scores.hidden(0).copy())
        for row in rows:
            runtime.commit(row, [0])
    for row in reversed(rows):
        runtime.drop_row(row)
    return [_trace(*parts, eos_ids) for parts in zip(prompts, gens, states, strict=True)]


def guess(drafter: Drafter, traces: Sequence[Trace], change: Change | None = None) -> Guesses:
    """The first guess at every place of every trace. change: of the hidden states before the drafter reads them."""
    if change is not None:
        traces = [replace(trace, hidden=change(trace.hidden)) for trace in traces]
    tokens, around = [], []
    for place in range(max((len(trace.gen) for trace in traces), default=1) - 1):
        there = [(row, trace) for row, trace in enumerate(traces) if place + 1 < len(trace.gen)]
        drafts = drafter.propose([_state(row, trace, place) for row, trace in there], Topology.chain(1))
        for (row, trace), draft in zip(there, drafts, strict=True):
            tokens.append(int(draft.tokens[1]))
            around.append([_at(trace, place + 1 + shift) for shift in SHIFTS])
            drafter.observe(row, [trace.gen[place]], trace.hidden[place + 1 : place + 2])
    for row in range(len(traces)):
        drafter.forget(row)
    return Guesses(np.array(tokens, np.int64), np.array(around, np.int64).reshape(-1, len(SHIFTS)))


def _trace(prompt: Sequence[int], gen: Sequence[int], states: Sequence[FloatArray], eos_ids: frozenset[int]) -> Trace:
    end = next((place + 1 for place, token in enumerate(gen) if token in eos_ids), len(gen))
    return Trace((*prompt, *gen[:end]), len(prompt), np.stack(states[:end]).astype(np.float32))


def _state(row: int, trace: Trace, place: int) -> DraftState:
    end = trace.prompt_len + place + 1
    return DraftState(row, trace.ids[end - 1], trace.hidden[place], trace.ids[:end])


def _at(trace: Trace, place: int) -> int:
    return trace.gen[place] if 0 <= place < len(trace.gen) else _NONE
