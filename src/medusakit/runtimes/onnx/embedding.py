"""Token embeddings, looked up outside the graph: rows stay in the model file's own format until a token asks for them.

So the table is neither copied into the graph nor held as float32 (for small models it is a fifth of the weights).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from medusakit.errors import RuntimeFailure
from medusakit.models.spec import StoredTensor, WeightSource
from medusakit.tree.topology import FloatArray, IntArray

_Q8_0 = np.dtype([("scale", "<f2"), ("q", "i1", (32,))])


class EmbeddingTable:
    def __init__(self, source: WeightSource) -> None:
        self._table = source.tensor("embed")
        # this format is the usual one of an embedding table, and the general way costs 50 us a call
        self._q8_0 = self._table.raw.view(_Q8_0) if self._table.format == "q8_0" else None
        self._scale = np.float32(source.spec.embed_scale)

    def rows(self, ids: IntArray) -> FloatArray:
        """[len(ids), d] float32. Raises RuntimeFailure for an id outside the vocabulary."""
        table = self._table
        listed = ids.tolist()
        if listed and not (min(listed) >= 0 and max(listed) < table.shape[0]):
            raise RuntimeFailure(
                f"token ids {min(listed)} to {max(listed)} are outside the vocabulary of {table.shape[0]}"
            )
        if self._q8_0 is not None:
            return self._scaled(_q8_0_rows(self._q8_0[ids]))
        picked = StoredTensor(table.name, table.format, (len(ids), table.shape[1]), table.raw[ids])
        return self._scaled(picked.f32())

    def _scaled(self, rows: FloatArray) -> FloatArray:
        return rows if self._scale == 1 else rows * self._scale


def _q8_0_rows(blocks: NDArray[np.void]) -> FloatArray:
    values: FloatArray = blocks["q"] * blocks["scale"].astype(np.float32)[..., None]
    return values.reshape(len(blocks), -1)
