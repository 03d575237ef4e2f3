"""Stored weights to float32: plain float formats here, GGUF block formats through the `gguf` package.

Rows are converted in slices, so the peak is the result plus a few megabytes, whatever the tensor's size.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

import numpy as np
from numpy.typing import NDArray

from medusakit.errors import FETCH_AGAIN, OTHER_MODEL, ModelError, UnsupportedModelError
from medusakit.models.spec import StoredTensor

# format -> (values per block, bytes per block); the layouts are GGML's
BLOCKS = {
    "q4_0": (32, 18),
    "q4_1": (32, 20),
    "q5_0": (32, 22),
    "q5_1": (32, 24),
    "q8_0": (32, 34),
    "q2_k": (256, 84),
    "q3_k": (256, 110),
    "q4_k": (256, 144),
    "q5_k": (256, 176),
    "q6_k": (256, 210),
}
PLAIN: dict[str, np.dtype[np.generic]] = {"f32": np.dtype("<f4"), "f16": np.dtype("<f2"), "bf16": np.dtype("<u2")}
FORMATS = (*PLAIN, *BLOCKS)

_SLICE_VALUES = 1 << 21  # 8 MB of float32 at a time


def row_bytes(format: str, columns: int) -> int:
    """Stored size of one row. Raises ModelError where the columns do not fill whole blocks."""
    if format in PLAIN:
        return columns * PLAIN[format].itemsize
    block, size = BLOCKS[format]
    if columns % block:
        raise ModelError(
            f"{format} stores blocks of {block} values, but a row has {columns}",
            hint=FETCH_AGAIN,
        )
    return columns // block * size


def to_f32(tensor: StoredTensor) -> NDArray[np.float32]:
    """The tensor's values [shape]. A view of the file where it already stores float32."""
    if tensor.format == "f32":
        return tensor.raw.view(np.float32)
    out = np.empty(tensor.shape, np.float32)
    flat = out.reshape(-1, tensor.shape[-1])
    for start, rows in _row_slices(tensor):
        flat[start : start + len(rows)] = rows
    return out


def _row_slices(tensor: StoredTensor) -> Iterator[tuple[int, NDArray[np.float32]]]:
    """(first row, float32 rows) over the tensor seen as [rows, last dimension]."""
    if tensor.format not in FORMATS:
        raise UnsupportedModelError(
            f"tensor {tensor.name!r} has the type {tensor.format}; supported: {', '.join(FORMATS)}",
            hint=OTHER_MODEL,
        )
    raw = tensor.raw.reshape(-1, tensor.raw.shape[-1])
    step = max(1, _SLICE_VALUES // max(1, tensor.shape[-1]))
    for start in range(0, len(raw), step):
        yield start, _rows_f32(tensor.format, raw[start : start + step])


def _rows_f32(format: str, rows: NDArray[np.generic]) -> NDArray[np.float32]:
    if format == "f32":
        return rows.view(np.float32)
    if format == "f16":
        return rows.astype(np.float32)
    if format == "bf16":
        # bfloat16 is the upper half of a float32
        return (rows.astype(np.uint32) << 16).view(np.float32)
    from gguf import GGMLQuantizationType  # late: the package costs 0.2 s, plain formats need none of it
    from gguf.quants import dequantize

    with np.errstate(over="ignore", invalid="ignore"):  # a bad scale is finite.py's to report
        values = dequantize(np.ascontiguousarray(rows), GGMLQuantizationType[format.upper()])
    return cast(NDArray[np.float32], values)
