"""How drafters without heads grow a draft: best first, from a function that says which tokens may follow a state.

What a state is belongs to the drafter (a match in the text, a token); here it is only handed on.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import log
from typing import Generic, NamedTuple, TypeVar

import numpy as np

from medusakit.tree.topology import Beam, Draft, Shape, Topology

MIN_PATH = log(0.01)  # a path less probable than this does not pay for its node
FILLER = log(1e-9)

State = TypeVar("State")


class Guess(NamedTuple, Generic[State]):
    """A token that may follow: its probability given the path to it, and the state after it."""

    token: int
    probability: float
    state: State


Guesses = Callable[[State, int], Sequence[Guess[State]]]
"""(state, n) -> at most n guesses with distinct tokens, the most probable first, each probability in (0, 1]."""


@dataclass(slots=True)
class _Nodes:
    """The nodes of a draft so far; node 0 is the root."""

    tokens: list[int]
    parents: list[int]
    ranks: list[int]
    logprobs: list[float]

    @classmethod
    def of_root(cls, root_id: int) -> _Nodes:
        return cls([root_id], [-1], [0], [0.0])

    def add(self, token: int, parent: int, rank: int, logprob: float) -> int:
        self.tokens.append(token)
        self.parents.append(parent)
        self.ranks.append(rank)
        self.logprobs.append(logprob)
        return len(self.tokens) - 1

    def draft(self, topology: Topology | None = None) -> Draft:
        return Draft(
            topology or Topology.from_parents(self.parents, self.ranks),
            np.array(self.tokens, np.int64),
            np.array(self.logprobs, np.float32),
        )


def grow(root_id: int, state: State, guesses: Guesses[State], shape: Shape) -> Draft:
    """The draft of `shape` under the root, whose state is `state`.

    A Beam gives only nodes that were guessed: the root alone if nothing was. A Topology gives exactly its nodes: where
    guesses run out, with any tokens, at a probability of nothing.
    """
    if isinstance(shape, Beam):
        return _grow_beam(root_id, state, guesses, shape)
    return _fill_topology(root_id, state, guesses, shape)


def _grow_beam(root_id: int, state: State, guesses: Guesses[State], beam: Beam) -> Draft:
    """Paths in order of probability. A child is never more probable than its parent, so each level's nodes are taken
    best first, and one that finds its level full ends its row of siblings."""
    nodes, room = _Nodes.of_root(root_id), list(beam.widths)
    heap: list[tuple[float, int, int, int, int, float, Sequence[Guess[State]]]] = []
    pushed = 0

    def push(parent: int, depth: int, rank: int, path: float, siblings: Sequence[Guess[State]]) -> None:
        nonlocal pushed
        if rank < len(siblings) and (total := path + log(siblings[rank].probability)) > MIN_PATH:
            pushed += 1  # equal paths: the one that was found first, which is the shallower one
            heapq.heappush(heap, (-total, pushed, parent, depth, rank, path, siblings))

    push(0, 0, 0, 0.0, guesses(state, beam.branching))
    while heap:
        loss, _, parent, depth, rank, path, siblings = heapq.heappop(heap)
        if not room[depth]:
            continue
        room[depth] -= 1
        guess = siblings[rank]
        node = nodes.add(guess.token, parent, rank, -loss - path)
        push(parent, depth, rank + 1, path, siblings)
        if depth + 1 < len(room):
            push(node, depth + 1, 0, -loss, guesses(guess.state, beam.branching))
    return nodes.draft()


def _fill_topology(root_id: int, state: State, guesses: Guesses[State], shape: Topology) -> Draft:
    nodes, ranks = _Nodes.of_root(root_id), shape.ranks.tolist()
    states: list[State | None] = [state]
    rows: dict[int, Sequence[Guess[State]]] = {}
    for node, parent in enumerate(shape.parents[1:].tolist(), start=1):
        if parent not in rows:
            known, wanted = states[parent], 1 + max(ranks[child] for child in shape.children[parent])
            rows[parent] = () if known is None else guesses(known, wanted)
        siblings, rank = rows[parent], ranks[node]
        if rank < len(siblings):
            nodes.add(siblings[rank].token, parent, rank, log(siblings[rank].probability))
            states.append(siblings[rank].state)
        else:
            nodes.add(_other(siblings, rank - len(siblings)), parent, rank, FILLER)
            states.append(None)
    return nodes.draft(shape)


def _other(guesses: Sequence[Guess[State]], place: int) -> int:
    """The token id at `place` (0, 1, ...) among those that were not guessed."""
    taken = {guess.token for guess in guesses}
    return [token for token in range(place + 1 + len(taken)) if token not in taken][place]
