"""The seam `Drafter`: guesses some tokens ahead of the root. Knows nothing of acceptance or of the KV cache.

Index convention (Medusa, eq. 1, 0-based here): with h_t the hidden state at the last accepted position t and the root
the token at t + 1, depth d of a draft (d = 1, 2, ...) is the token at t + 1 + d, i.e. head d - 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from medusakit.runtimes.base import Scores
from medusakit.tree.topology import Draft, FloatArray, Shape, Tree


@dataclass(frozen=True, slots=True)
class DraftState:
    """What a drafter may look at, per row.

    root_id  the decided token at position t + 1
    hidden   [d] float32, hidden state after the final norm at the last accepted position t
    ids      the row's token ids up to and including the root (prompt and output)
    """

    row: int
    root_id: int
    hidden: FloatArray
    ids: Sequence[int]


@runtime_checkable
class Drafter(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def max_depth(self) -> int: ...

    def propose(self, states: Sequence[DraftState], shape: Shape) -> list[Draft]:
        """One draft per state. With a Topology the draft has exactly its nodes, in its order; with a Beam, a trie in
        which every parent comes before its children."""
        ...

    def observe(self, row: int, kept_ids: Sequence[int], hidden: FloatArray) -> None:
        """After commit: ids that entered the KV ([m]) and their hidden states [m, d]. May do nothing."""
        ...

    def forget(self, row: int) -> None:
        """The row is gone: drop any state kept for it."""
        ...


@runtime_checkable
class StepReader(Protocol):
    """A drafter that also learns from what the model said at the nodes of a step, refused ones included."""

    def read_step(self, row: int, tree: Tree, kept: Sequence[int], scores: Scores) -> None:
        """After `observe`. kept: the path that was committed, root first. scores: valid only during the call."""
        ...


@runtime_checkable
class Learner(Protocol):
    """A drafter whose guesses improve by what it sees of the answers."""

    def reset(self) -> None:
        """Drop all of it, as if nothing had been drafted yet."""
        ...


def show_step(drafter: Drafter, row: int, tree: Tree, kept: Sequence[int], scores: Scores) -> None:
    """Let the drafter read a step, if it is one that does."""
    if isinstance(drafter, StepReader):
        drafter.read_step(row, tree, kept, scores)
