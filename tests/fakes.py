"""Test doubles: scores from arrays, a byte tokenizer, a scripted runtime and drafters, a clock that tests turn."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from medusakit.tree.topology import FloatArray


@dataclass(frozen=True, slots=True)
class ArrayScores:
    """`Scores` over given logits [n, V] (and hidden states [n, d])."""

    rows: FloatArray
    states: FloatArray | None = None

    @property
    def num_nodes(self) -> int:
        return len(self.rows)

    def argmax(self, node: int) -> int:
        return int(self.rows[node].argmax())

    def logits(self, node: int) -> FloatArray:
        row = self.rows[node].view()
        row.setflags(write=False)
        return row

    def hidden(self, node: int) -> FloatArray:
        assert self.states is not None, "these scores were made without hidden states"
        return self.states[node]


def scores(rows: object) -> ArrayScores:
    return ArrayScores(np.asarray(rows, dtype=np.float32))
