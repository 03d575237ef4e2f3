"""The context drafter at work: everything but the layer and the memory of rows is every recurrent drafter's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from medusakit.artifact.schema import DrafterConfig
from medusakit.drafters.base import DraftState
from medusakit.drafters.context.config import FAMILY, context_params
from medusakit.drafters.context.graph import FAR, ContextCell
from medusakit.drafters.recurrent.drafter import Arrays, RecurrentDrafter
from medusakit.drafters.recurrent.graph import Cell
from medusakit.drafters.recurrent.memory import PairMemory, pair_arrays
from medusakit.tree.topology import FloatArray


@dataclass(frozen=True, slots=True)
class _Past:
    """Keys and values [n, w] of a row's committed positions, the newest last."""

    keys: FloatArray
    values: FloatArray


class ContextDrafter(RecurrentDrafter):
    """Looks back at the answer through keys and values of its own. Those of the positions that were committed since
    the last draft are made by the next draft's own call, so that the weights are read once."""

    name = FAMILY

    def _make_cell(self, config: DrafterConfig, hidden_size: int) -> Cell:
        params = context_params(config)
        self._size, self._kept = hidden_size, params.window - 1  # the window's newest position is t, in the draft
        self._nothing = _Past(*np.zeros((2, 0, params.width), np.float32))
        self._waiting = PairMemory(self._kept)
        self._past: dict[int, _Past] = {}
        return ContextCell(params, self._tensors, hidden_size)

    def _context(self, states: Sequence[DraftState]) -> Arrays:
        for state in states:
            if not self._waiting.meet(state):
                self._past[state.row] = self._nothing
        pairs = [self._waiting.pairs(state.row) for state in states]
        new = pair_arrays(pairs, max(1, *map(len, pairs)), self._size, self._embedded)
        pasts = [self._past[state.row] for state in states]
        return {
            "before_hidden": new.hidden,
            "before_embedded": new.embedded,
            "past_keys": _stacked([past.keys for past in pasts]),
            "past_values": _stacked([past.values for past in pasts]),
            "distance": np.stack([
                self._distances(len(past.keys), max(len(other.keys) for other in pasts), len(read), new.known.shape[1])
                for past, read in zip(pasts, pairs, strict=True)
            ]),
        }  # fmt: skip

    def _distances(self, past: int, past_length: int, new: int, new_length: int) -> FloatArray:
        """[past_length + new_length], of one row: its newest committed position is 1 before t."""
        distances = np.full(past_length + new_length, FAR)
        distances[past_length + new_length - new :] = np.arange(new, 0, -1)
        old = np.arange(new + past, new, -1)
        distances[past_length - past : past_length] = np.where(old <= self._kept, old, FAR)
        return distances

    def _learn(self, states: Sequence[DraftState], found: Arrays) -> None:
        for row, state in enumerate(states):
            new, past = len(self._waiting.pairs(state.row)), self._past[state.row]
            keys, values = (
                np.concatenate([old, found[name][row, found[name].shape[1] - new :]])[-self._kept :]
                for name, old in (("committed_keys", past.keys), ("committed_values", past.values))
            )
            self._past[state.row] = _Past(keys, values)
            self._waiting.clear(state.row)

    def observe(self, row: int, kept_ids: Sequence[int], hidden: FloatArray) -> None:
        self._waiting.observe(row, kept_ids, hidden)

    def forget(self, row: int) -> None:
        self._waiting.forget(row)
        self._past.pop(row, None)


def _stacked(rows: Sequence[FloatArray]) -> FloatArray:
    """[R, longest, w], zeros before shorter ones."""
    longest = max(map(len, rows))
    return np.stack([np.pad(row, ((longest - len(row), 0), (0, 0))) for row in rows])
