"""What the recurrent drafter remembers of a row: keys and values of the answer's latest slots.

Slot j is [rms(h_j); rms(e(x_j)); rms(e(x_j+1))], so it is complete once the token after x_j is decided. Slots wait
until the next draft, whose graph turns them into keys and values; a row that is decoded plainly meanwhile
only collects them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from medusakit.drafters.base import DraftState
from medusakit.drafters.hydra.config import HydraParams
from medusakit.drafters.rows import TableRows, rms_normalised
from medusakit.tree.topology import FloatArray

EMPTY_AGE = np.float32(1e6)  # positions: older than any window
Slot = tuple[int, FloatArray]  # position, hidden [d]


@dataclass(slots=True)
class RowMemory:
    """keys, values [H, W, D] and positions [W], written round and round; waiting: (token id, hidden [d]) since then."""

    keys: FloatArray
    values: FloatArray
    positions: FloatArray
    written: int = 0
    waiting: list[tuple[int, FloatArray]] = field(default_factory=list)

    @classmethod
    def empty(cls, params: HydraParams) -> RowMemory:
        shape = (params.context_heads, params.window, params.context_dim)
        return cls(np.zeros(shape, np.float32), np.zeros(shape, np.float32), np.full(params.window, -EMPTY_AGE))

    @property
    def capacity(self) -> int:
        return len(self.positions)

    def collect(self, ids: Sequence[int], hidden: FloatArray) -> None:
        """Tokens that entered the KV, with their hidden states [m, d]."""
        self.waiting.extend((token, np.array(hidden[place], np.float32)) for place, token in enumerate(ids))
        del self.waiting[: -self.capacity]

    def take(self, state: DraftState) -> list[Slot]:
        """The waiting slots with their positions, the last accepted position t always among them.

        Ids are compared with the row's own: after a gap (the row went on without this drafter) what waited is dropped.
        """
        last = len(state.ids) - 2
        waiting, self.waiting = self.waiting, []
        first = last + 1 - len(waiting)
        if first < 0 or [token for token, _ in waiting] != list(state.ids[first : last + 1]):
            waiting = []
        slots = [(first + place, hidden) for place, (_, hidden) in enumerate(waiting)]
        return slots or [(last, state.hidden)]

    def store(self, positions: Sequence[int], keys: FloatArray, values: FloatArray) -> None:
        """keys, values [H, S, D] of finished slots, in order. What was known of these or later positions is gone."""
        self.positions[self.positions >= positions[0]] = -EMPTY_AGE
        places = (self.written + np.arange(len(positions))) % self.capacity
        self.keys[:, places], self.values[:, places] = keys, values
        self.positions[places] = positions
        self.written += len(positions)


def slot_rows(slots: Sequence[Slot], ids: Sequence[int], embedding: TableRows) -> FloatArray:
    """[S, 3 d] float32: what the graph reads of finished slots. ids: the row's tokens up to and including the root.

    A row that begins with its root (position -1 before it) has no token there: zeros.
    """
    hidden = rms_normalised(np.stack([state for _, state in slots]))
    here = np.stack([embedding.one(ids[position]) for position, _ in slots])
    after = np.stack([embedding.one(ids[position + 1]) for position, _ in slots])
    return np.concatenate([hidden, rms_normalised(here), rms_normalised(after)], axis=1)
