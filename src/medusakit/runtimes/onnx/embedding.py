"""Token embeddings, looked up outside the graph: rows stay in the model file's own format until a token asks for them.

So the table is neither copied into the graph nor held as float32 (for small models it is a fifth of the weights).
"""

from __future__ import annotations

import numpy as np

from medusakit.errors import RuntimeFailure
from medusakit.models.spec import StoredTensor, WeightSource
from medusakit.tree.topology import FloatArray, IntArray


class EmbeddingTable:
    def __init__(self, source: WeightSource) -> None:
        self._table = source.tensor("embed")
        self._scale = np.float32(source.spec.embed_scale)

    def rows(self, ids: IntArray) -> FloatArray:
        """[len(ids), d] float32. Raises RuntimeFailure for an id outside the vocabulary."""
        table = self._table
        if len(ids) and not (ids.min() >= 0 and ids.max() < table.shape[0]):
            raise RuntimeFailure(
                f"token ids {int(ids.min())} to {int(ids.max())} are outside the vocabulary of {table.shape[0]}"
            )
        if table.format == "q8_0":
            return self._scaled(_q8_0_rows(table.raw[ids]))
        picked = StoredTensor(table.name, table.format, (len(ids), table.shape[1]), table.raw[ids])
        return self._scaled(picked.f32())

    def _scaled(self, rows: FloatArray) -> FloatArray:
        return rows if self._scale == 1 else rows * self._scale


def _q8_0_rows(raw: np.ndarray[tuple[int, ...], np.dtype[np.generic]]) -> FloatArray:
    """The general path costs 50 us a call; this format is the usual one of an embedding table, so it has its own."""
    blocks = raw.view(np.uint8).reshape(len(raw), -1, 34)
    scales = blocks[..., :2].copy().view(np.float16).astype(np.float32)
    return (blocks[..., 2:].view(np.int8) * scales).reshape(len(raw), -1)
