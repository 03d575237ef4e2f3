"""One .safetensors file through a memory map.

Layout: u64 header length, JSON header {name: {dtype, shape, data_offsets}}, data. Read here and not with the
safetensors package, because that has no NumPy type for bfloat16 and copies what it returns.
"""

from __future__ import annotations

import json
import math
import mmap
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from medusakit.errors import FETCH_AGAIN, ModelError, UnsupportedModelError
from medusakit.models.dequant import PLAIN
from medusakit.models.pages import PageBudget, map_file
from medusakit.models.spec import StoredTensor

_FORMATS = {"F32": "f32", "F16": "f16", "BF16": "bf16"}
_MAX_HEADER_BYTES = 100 << 20  # the format's own limit


@dataclass(frozen=True, slots=True)
class Entry:
    """Where one tensor lies; `offset` counts from the file's start."""

    dtype: str
    shape: tuple[int, ...]
    offset: int
    num_bytes: int


class SafetensorsFile:
    """An opened file; `entries` by stored name. Raises ModelError where it is damaged."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._map = map_file(path)
        self._pages = PageBudget(self._map)
        self.entries = _entries(self._map, path)

    def tensor(self, name: str) -> StoredTensor:
        """A view of the stored values. Raises UnsupportedModelError for types other than F32, F16 and BF16."""
        entry = self.entries[name]
        format = _FORMATS.get(entry.dtype)
        if format is None:
            raise UnsupportedModelError(
                f"{self.path}: tensor {name!r} has the type {entry.dtype}; supported: {', '.join(_FORMATS)}",
                hint="the unquantised model, or its .gguf file",
            )
        self._pages.hand_out(entry.num_bytes)
        dtype = PLAIN[format]
        raw = np.frombuffer(self._map, dtype, entry.num_bytes // dtype.itemsize, entry.offset)
        return StoredTensor(name, format, entry.shape, raw.reshape(entry.shape))


def _entries(data: mmap.mmap, path: Path) -> dict[str, Entry]:
    header, start = _header(data, path)
    header.pop("__metadata__", None)
    return {name: _entry(name, value, start, len(data), path) for name, value in header.items()}


def _header(data: mmap.mmap, path: Path) -> tuple[dict[str, Any], int]:
    """(parsed header, offset of the data section)"""
    size = int.from_bytes(data[:8], "little")
    if len(data) < 8 or size > min(len(data) - 8, _MAX_HEADER_BYTES):
        raise ModelError(
            f"{path} is truncated or no safetensors file: its header needs {size} bytes, the file has {len(data)}",
            hint="download the file again",
        )
    try:
        header = json.loads(data[8 : 8 + size])
    except ValueError as error:
        raise ModelError(
            f"{path} is damaged: its header is not JSON ({error})", hint="download the file again"
        ) from None
    if not isinstance(header, dict):
        raise ModelError(
            f"{path} is damaged: its header is not a table of tensors",
            hint=FETCH_AGAIN,
        )
    return header, 8 + size


def _entry(name: str, value: Any, start: int, end: int, path: Path) -> Entry:
    try:
        dtype, shape = str(value["dtype"]), tuple(int(size) for size in value["shape"])
        first, last = (int(offset) for offset in value["data_offsets"])
    except (KeyError, TypeError, ValueError):
        raise ModelError(
            f"{path} is damaged: the header's entry of tensor {name!r} is {value!r}",
            hint=FETCH_AGAIN,
        ) from None
    format = _FORMATS.get(dtype)
    if format is not None and (last - first != math.prod(shape) * PLAIN[format].itemsize or min(shape, default=1) < 1):
        raise ModelError(
            f"{path} is damaged: tensor {name!r} of {dtype} {list(shape)} has {last - first} bytes",
            hint=FETCH_AGAIN,
        )
    if first < 0 or start + last > end:
        raise ModelError(
            f"{path} is truncated: tensor {name!r} ends at byte {start + last}, the file has {end}",
            hint="download the file again",
        )
    return Entry(dtype, shape, start + first, last - first)
