"""Rows of the backbone's embedding and LM head, taken from its file as they are needed.

A drafter shares both with the backbone, so an artifact holds neither. A full float copy of the table would double the
memory of a quantised model; the rows of a draft vocabulary, and one row per token, are all that is asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from medusakit.models.spec import StoredTensor, WeightSource
from medusakit.tree.topology import FloatArray, IntArray


class TableRows:
    """Rows of one stored [V, d] table as float32."""

    def __init__(self, table: StoredTensor) -> None:
        self._table = table
        self._one = lru_cache(maxsize=4096)(self._dequantise_one)

    @classmethod
    def embedding(cls, source: WeightSource) -> TableRows:
        return cls(source.tensor("embed"))

    @classmethod
    def lm_head(cls, source: WeightSource) -> TableRows:
        return cls(source.tensor("embed" if source.spec.tied_embeddings else "lm_head"))

    def take(self, ids: Sequence[int] | IntArray) -> FloatArray:
        """[n, d] float32, fresh."""
        raw = np.ascontiguousarray(self._table.raw[np.asarray(ids, np.int64)])
        part = StoredTensor(self._table.name, self._table.format, (len(raw), self._table.shape[1]), raw)
        return np.array(part.f32(), np.float32)

    def one(self, token_id: int) -> FloatArray:
        """[d] float32, kept for the next time."""
        return self._one(token_id)

    def _dequantise_one(self, token_id: int) -> FloatArray:
        row: FloatArray = self.take([token_id])[0]
        row.setflags(write=False)
        return row


def rms_normalised(x: FloatArray) -> FloatArray:
    """Rows scaled to mean square one, the form in which drafters read hidden states and embeddings."""
    mean_square = np.mean(np.square(x), axis=-1, keepdims=True) + np.float32(1e-6)
    normalised: FloatArray = x / np.sqrt(mean_square)
    return normalised
