"""`Scores` over a pass's tensors: on the CPU views, from a device one copy when first asked for."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np

from medusakit.tree.topology import FloatArray


class TorchScores:
    """all_logits [n, V], all_hidden [n, d]: tensors of any float type on any device."""

    def __init__(self, all_logits: Any, all_hidden: Any) -> None:
        self._all_logits, self._all_hidden = all_logits, all_hidden

    @property
    def num_nodes(self) -> int:
        return len(self._all_logits)

    def argmax(self, node: int) -> int:
        return int(np.argmax(self._logits[node]))  # NumPy takes the first, so the lowest id, of equal maxima

    def logits(self, node: int) -> FloatArray:
        row: FloatArray = self._logits[node].view()
        row.setflags(write=False)
        return row

    def hidden(self, node: int) -> FloatArray:
        row: FloatArray = self._hidden[node]
        return row

    @cached_property
    def _logits(self) -> FloatArray:
        return as_numpy(self._all_logits)

    @cached_property
    def _hidden(self) -> FloatArray:
        return as_numpy(self._all_hidden)


def as_numpy(tensor: Any) -> FloatArray:
    array: FloatArray = tensor.float().cpu().numpy()
    return array
