"""Refuses weights that are NaN or infinite, by name and place, at a cost far below reading the file."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from medusakit.errors import ModelError
from medusakit.models.dequant import BLOCKS
from medusakit.models.spec import StoredTensor

# byte offsets of the float16 scales inside a block: every other field is an integer, so only these can go wrong
_SCALES = {
    "q4_0": (0,), "q4_1": (0, 2), "q5_0": (0,), "q5_1": (0, 2), "q8_0": (0,),
    "q2_k": (80, 82), "q3_k": (108,), "q4_k": (0, 2), "q5_k": (0, 2), "q6_k": (208,),
}  # fmt: skip
_EXPONENT = {"f16": 0x7C00, "bf16": 0x7F80}  # all exponent bits set: NaN or infinity
_SLICE = 1 << 20  # values at a time, so that the check needs no memory to speak of


def check_finite(tensor: StoredTensor) -> None:
    """Raise ModelError, naming the tensor and the first bad element (or block), where a weight is not finite."""
    step = max(1, _SLICE // max(1, tensor.shape[-1]))
    rows = tensor.raw.reshape(-1, tensor.raw.shape[-1])
    for start in range(0, len(rows), step):
        bad = _bad(tensor.format, rows[start : start + step])
        if bad is not None:
            raise ModelError(
                f"tensor {tensor.name!r} is NaN or infinite in row {start + bad[0]}, column {bad[1]}; "
                "every weight must be finite",
                hint="download or convert the model again",
            )


def _bad(format: str, rows: NDArray[np.generic]) -> tuple[int, int] | None:
    """(row, column) of the first value that is not finite."""
    if format in BLOCKS:
        return _bad_block(format, rows)
    if format == "f32":
        # the sum is NaN or infinite if any value is: one pass, and no array of booleans in the usual case
        with np.errstate(over="ignore", invalid="ignore"):
            if np.isfinite(rows.view(np.float32).sum()):
                return None
        return _first(~np.isfinite(rows.view(np.float32)))
    mask = np.uint16(_EXPONENT[format])
    return _first((rows.view(np.uint16) & mask) == mask)


def _bad_block(format: str, rows: NDArray[np.generic]) -> tuple[int, int] | None:
    values, size = BLOCKS[format]
    blocks = rows.view(np.uint8).reshape(len(rows), -1, size)
    mask = np.uint8(_EXPONENT["f16"] >> 8)
    for offset in _SCALES[format]:
        # the exponent sits in the upper byte, the second one in little-endian order
        found = _first((blocks[:, :, offset + 1] & mask) == mask)
        if found is not None:
            return found[0], found[1] * values
    return None


def _first(bad: NDArray[np.bool_]) -> tuple[int, int] | None:
    if not bad.any():
        return None
    row, column = np.unravel_index(int(bad.argmax()), bad.shape)
    return int(row), int(column)
