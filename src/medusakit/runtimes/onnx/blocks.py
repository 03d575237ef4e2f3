"""Quantised weights as integers, one scale a block and, where the format has a block minimum, one offset: what 4- and
8-bit matrix products need, taken from GGUF blocks without a second rounding.

A value is `scale * q + offset`, with q signed and centred (a block minimum m over unsigned q0 becomes q = q0 - c and
offset = m + c * scale), which keeps the rounding errors of quantised activations small. Block layouts are GGML's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from medusakit.models.spec import StoredTensor
from medusakit.tree.topology import FloatArray

Bytes = NDArray[np.uint8]
_BLOCK = 32  # of weights that are quantised here
_SLICE_VALUES = 1 << 20


@dataclass(frozen=True, slots=True)
class Blocks:
    """A weight [out, in], quantised along `in`.

    bits     4 or 8, the container: every q fits -2 ** (bits - 1) .. 2 ** (bits - 1) - 1
    q        [out, in / block, block] int8
    scales   [out, in / block] float32
    offsets  [out, in / block] float32, or None where all are zero
    """

    bits: int
    q: NDArray[np.int8]
    scales: FloatArray
    offsets: FloatArray | None = None

    @property
    def block(self) -> int:
        return int(self.q.shape[-1])

    def values(self) -> FloatArray:
        """[out, in] float32 (in rounded up to whole blocks)."""
        dense = self.q * self.scales[..., None]
        if self.offsets is not None:
            dense += self.offsets[..., None]
        return dense.reshape(len(dense), -1)


def is_block_format(tensor: StoredTensor) -> bool:
    return tensor.format in _UNPACK


def stored_bits(tensor: StoredTensor) -> int:
    """Container that holds the stored integers: 4 or 8 for block formats, 32 for plain ones."""
    return _UNPACK[tensor.format][0] if tensor.format in _UNPACK else 32


def unpack(tensor: StoredTensor) -> Blocks:
    """The stored integers of a block format, nothing rounded."""
    return _in_slices(tensor, _unpack_rows)


def quantise(tensor: StoredTensor, bits: int) -> Blocks:
    """Round to nearest, symmetric, blocks of 32; a last block that `in` does not fill is padded with zeros.

    At 4 bits the value of largest magnitude becomes -8 exactly (as in Q4_0), which uses the whole range.
    """
    return _in_slices(tensor, lambda rows: _quantise_rows(rows.f32(), bits))


def pack(blocks: Blocks) -> NDArray[np.uint8]:
    """[out, blocks, bytes]: unsigned with the implied zero point (8 or 128), two 4-bit values a byte, low one first."""
    if blocks.bits == 8:
        return np.bitwise_xor(blocks.q.view(np.uint8), 128, dtype=np.uint8)
    nibbles = (blocks.q + 8).view(np.uint8)
    packed: NDArray[np.uint8] = nibbles[..., ::2] | nibbles[..., 1::2] * np.uint8(16)
    return packed


def _in_slices(tensor: StoredTensor, function: Callable[[StoredTensor], Blocks]) -> Blocks:
    """Row by row results of `function`, joined. Its intermediate arrays, several times the result, stay small so."""
    rows, columns = tensor.shape
    step = max(1, _SLICE_VALUES // columns)
    whole: Blocks | None = None
    for start in range(0, rows, step):
        raw = tensor.raw[start : start + step]
        part = function(StoredTensor(tensor.name, tensor.format, (len(raw), columns), raw))
        whole = whole or _like(part, rows)
        whole.q[start : start + step] = part.q
        whole.scales[start : start + step] = part.scales
        if whole.offsets is not None:
            whole.offsets[start : start + step] = part.offsets
    assert whole is not None  # a weight has rows
    return whole


def _like(part: Blocks, rows: int) -> Blocks:
    q, scales = (np.empty((rows, *array.shape[1:]), array.dtype) for array in (part.q, part.scales))
    return Blocks(part.bits, q, scales, None if part.offsets is None else np.empty_like(scales))


def _unpack_rows(tensor: StoredTensor) -> Blocks:
    bits, size, function = _UNPACK[tensor.format]
    raw = np.ascontiguousarray(tensor.raw).view(np.uint8).reshape(-1, size)
    q, scales, offsets = function(raw)
    rows = tensor.shape[0]
    return Blocks(
        bits,
        q.astype(np.int8, copy=False).reshape(rows, -1, q.shape[-1]),
        scales.astype(np.float32, copy=False).reshape(rows, -1),
        None if offsets is None else offsets.astype(np.float32, copy=False).reshape(rows, -1),
    )


def _quantise_rows(values: FloatArray, bits: int) -> Blocks:
    blocks = np.pad(values, ((0, 0), (0, -values.shape[1] % _BLOCK))).reshape(len(values), -1, _BLOCK)
    low, high = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
    extreme = np.take_along_axis(blocks, np.abs(blocks).argmax(-1)[..., None], -1)[..., 0]
    scales = (extreme / low if bits == 4 else np.abs(extreme) / high).astype(np.float32)
    inverse = np.divide(1, scales, out=np.zeros_like(scales), where=scales != 0)
    q = np.clip(np.rint(blocks * inverse[..., None]), low, high).astype(np.int8)
    return Blocks(bits, q, scales)


_Parts = tuple[NDArray[np.integer], FloatArray, FloatArray | None]


def _half(raw: Bytes, offset: int) -> FloatArray:
    """[blocks, 1] float32 from the float16 at a byte offset."""
    return raw[:, offset : offset + 2].copy().view(np.float16).astype(np.float32)


def _nibbles(raw: Bytes) -> Bytes:
    """[blocks, 16] to [blocks, 32]: low nibbles are the first half, high ones the second."""
    return np.concatenate([raw & 15, raw >> 4], axis=1)


def _fields(raw: Bytes, group: int, width: int) -> Bytes:
    """Fields of `width` bits: per group of bytes all lowest fields, then all next ones. [blocks, bytes * 8 / width]."""
    shifts = np.arange(0, 8, width, dtype=np.uint8).reshape(1, 1, -1, 1)
    parts = raw.reshape(len(raw), -1, 1, group) >> shifts
    fields: Bytes = (parts & (2**width - 1)).reshape(len(raw), -1)
    return fields


def _fifth_bits(raw: Bytes) -> Bytes:
    """[blocks, 4] bytes to [blocks, 32] values 0 or 16, bit i for value i."""
    return np.unpackbits(raw, axis=1, bitorder="little") * np.uint8(16)


def _q4_0(raw: Bytes) -> _Parts:
    return _nibbles(raw[:, 2:]).astype(np.int8) - 8, _half(raw, 0), None


def _q4_1(raw: Bytes) -> _Parts:
    scale = _half(raw, 0)
    return _nibbles(raw[:, 4:]).astype(np.int8) - 8, scale, _half(raw, 2) + 8 * scale


def _q5_0(raw: Bytes) -> _Parts:
    return (_nibbles(raw[:, 6:]) | _fifth_bits(raw[:, 2:6])).astype(np.int8) - 16, _half(raw, 0), None


def _q5_1(raw: Bytes) -> _Parts:
    scale = _half(raw, 0)
    q = (_nibbles(raw[:, 8:]) | _fifth_bits(raw[:, 4:8])).astype(np.int8) - 16
    return q, scale, _half(raw, 2) + 16 * scale


def _q8_0(raw: Bytes) -> _Parts:
    return raw[:, 2:].view(np.int8), _half(raw, 0), None


def _q2_k(raw: Bytes) -> _Parts:
    scales = _half(raw, 80) * (raw[:, :16] & 15)
    minimum = _half(raw, 82) * (raw[:, :16] >> 4)
    q = _fields(raw[:, 16:80], 32, 2).astype(np.int8) - 2
    return q.reshape(-1, 16), scales, 2 * scales - minimum


def _q3_k(raw: Bytes) -> _Parts:
    packed = raw[:, 96:108]
    six = _fields(packed[:, :8], 8, 4) | (_fields(packed[:, 8:], 4, 2) << 4)
    scales = _half(raw, 108) * (six.astype(np.int8) - 32)
    high = _fields(raw[:, :32], 32, 1) << 2  # a set bit means: do not subtract 4
    q = (_fields(raw[:, 32:96], 32, 2) | high).astype(np.int8) - 4
    return q.reshape(-1, 16), scales, None


def _k_scales(packed: Bytes) -> tuple[Bytes, Bytes]:
    """Eight 6-bit scales and eight 6-bit minima of q4_k and q5_k, from 12 bytes."""
    first, second, third = packed[:, :4], packed[:, 4:8], packed[:, 8:]
    scales = np.concatenate([first & 63, (third & 15) | (first >> 2 & 48)], axis=1)
    minima = np.concatenate([second & 63, (third >> 4) | (second >> 2 & 48)], axis=1)
    return scales, minima


def _with_k_minima(raw: Bytes, q: Bytes, centre: int) -> _Parts:
    six_scales, six_minima = _k_scales(raw[:, 4:16])
    scales = _half(raw, 0) * six_scales
    return (q.astype(np.int8) - centre).reshape(-1, 32), scales, centre * scales - _half(raw, 2) * six_minima


def _q4_k(raw: Bytes) -> _Parts:
    return _with_k_minima(raw, _fields(raw[:, 16:], 32, 4), 8)


def _q5_k(raw: Bytes) -> _Parts:
    return _with_k_minima(raw, _fields(raw[:, 48:], 32, 4) | _fields(raw[:, 16:48], 32, 1) * np.uint8(16), 16)


def _q6_k(raw: Bytes) -> _Parts:
    scales = _half(raw, 208) * raw[:, 192:208].view(np.int8)
    q = _fields(raw[:, :128], 64, 4) | (_fields(raw[:, 128:192], 32, 2) << 4)
    return (q.astype(np.int8) - 32).reshape(-1, 16), scales, None


# format -> (container bits, bytes a block, function)
_UNPACK: dict[str, tuple[int, int, Callable[[Bytes], _Parts]]] = {
    "q4_0": (4, 18, _q4_0), "q4_1": (4, 20, _q4_1), "q5_0": (8, 22, _q5_0), "q5_1": (8, 24, _q5_1),
    "q8_0": (8, 34, _q8_0), "q2_k": (4, 84, _q2_k), "q3_k": (4, 110, _q3_k), "q4_k": (4, 144, _q4_k),
    "q5_k": (8, 176, _q5_k), "q6_k": (8, 210, _q6_k),
}  # fmt: skip
