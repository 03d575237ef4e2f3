"""The convolution and LSTM at work: everything but the cell and the window is every recurrent drafter's."""

from __future__ import annotations

from collections.abc import Sequence

from medusakit.artifact.schema import DrafterConfig
from medusakit.drafters.base import DraftState
from medusakit.drafters.cnn_lstm.config import FAMILY, cnn_lstm_params
from medusakit.drafters.cnn_lstm.graph import CnnLstmCell
from medusakit.drafters.recurrent.drafter import Arrays, RecurrentDrafter
from medusakit.drafters.recurrent.graph import Cell
from medusakit.drafters.recurrent.memory import PairMemory, pair_arrays
from medusakit.tree.topology import FloatArray


class CnnLstmDrafter(RecurrentDrafter):
    """Reads the newest committed positions, then its own draft."""

    name = FAMILY

    def _make_cell(self, config: DrafterConfig, hidden_size: int) -> Cell:
        params = cnn_lstm_params(config)
        self._before, self._size = params.window - 1, hidden_size
        self._memory = PairMemory(self._before)
        return CnnLstmCell(params, self._tensors, hidden_size)

    def _context(self, states: Sequence[DraftState]) -> Arrays:
        for state in states:
            self._memory.meet(state)
        pairs = [self._memory.pairs(state.row) for state in states]
        arrays = pair_arrays(pairs, self._before, self._size, self._embedded)
        return {"before_hidden": arrays.hidden, "before_embedded": arrays.embedded}

    def observe(self, row: int, kept_ids: Sequence[int], hidden: FloatArray) -> None:
        self._memory.observe(row, kept_ids, hidden)

    def forget(self, row: int) -> None:
        self._memory.forget(row)
