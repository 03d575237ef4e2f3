"""The state-space drafter at work: everything but the cell and the memory of rows is every recurrent drafter's."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from medusakit.artifact.schema import DrafterConfig
from medusakit.drafters.base import DraftState
from medusakit.drafters.recurrent.drafter import Arrays, RecurrentDrafter
from medusakit.drafters.recurrent.graph import Cell
from medusakit.drafters.recurrent.memory import PairMemory, pair_arrays
from medusakit.drafters.ssm.config import FAMILY, ssm_params
from medusakit.drafters.ssm.graph import SsmCell
from medusakit.tree.topology import FloatArray

MAX_WAITING = 128  # committed positions that no draft has read yet; older ones have faded where they are more


class SsmDrafter(RecurrentDrafter):
    """A memory per row. What was committed since the last draft is read into it by the next draft's own call, so that
    the weights are read once."""

    name = FAMILY

    def _make_cell(self, config: DrafterConfig, hidden_size: int) -> Cell:
        params = ssm_params(config)
        self._size = hidden_size
        self._nothing = np.zeros(params.memory, np.float32)
        self._waiting = PairMemory(MAX_WAITING)
        self._carried: dict[int, FloatArray] = {}
        return SsmCell(params, self._tensors, hidden_size)

    def _context(self, states: Sequence[DraftState]) -> Arrays:
        for state in states:
            if not self._waiting.meet(state):
                self._carried[state.row] = self._nothing
        pairs = [self._waiting.pairs(state.row) for state in states]
        arrays = pair_arrays(pairs, max(1, *map(len, pairs)), self._size, self._embedded)
        return {
            "before_hidden": arrays.hidden,
            "before_embedded": arrays.embedded,
            "known": arrays.known,
            "carried": np.stack([self._carried[state.row] for state in states]),
        }

    def _learn(self, states: Sequence[DraftState], found: Arrays) -> None:
        for state, memory in zip(states, found["state_0"], strict=True):
            self._carried[state.row] = memory
            self._waiting.clear(state.row)

    def observe(self, row: int, kept_ids: Sequence[int], hidden: FloatArray) -> None:
        self._waiting.observe(row, kept_ids, hidden)

    def forget(self, row: int) -> None:
        self._waiting.forget(row)
        self._carried.pop(row, None)
