"""`Scores` over the graph's output memory: views, no copies."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from medusakit.tree.topology import FloatArray


@dataclass(frozen=True, slots=True)
class OnnxScores:
    """all_logits [n, V] and all_hidden [n, d], views of buffers that the next pass overwrites."""

    all_logits: FloatArray
    all_hidden: FloatArray

    @property
    def num_nodes(self) -> int:
        return len(self.all_logits)

    def argmax(self, node: int) -> int:
        return int(np.argmax(self.all_logits[node]))  # NumPy takes the first, so the lowest id, of equal maxima

    def logits(self, node: int) -> FloatArray:
        row: FloatArray = self.all_logits[node]
        return row

    def hidden(self, node: int) -> FloatArray:
        row: FloatArray = self.all_hidden[node]
        return row
