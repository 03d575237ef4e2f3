"""The GGUF container: header, metadata and tensor directory, read through a memory map.

Layout (GGUF versions 2 and 3, little endian): magic "GGUF", u32 version, u64 tensors, u64 keys, the key-value pairs,
the tensor directory, padding to `general.alignment`, tensor data. Every length is checked against the file's end before
it is used, so a truncated or damaged file gives a ModelError that says where, never a traceback.
The `gguf` package's own reader makes several NumPy objects per vocabulary entry: 2 to 10 s a file against 0.1 s here.
"""

from __future__ import annotations

import mmap
import struct
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from medusakit.errors import FETCH_AGAIN, GIVE_A_MODEL, ModelError, UnsupportedModelError
from medusakit.models.dequant import FORMATS, PLAIN, row_bytes
from medusakit.models.pages import PageBudget, map_file
from medusakit.models.spec import StoredTensor

Value = bool | int | float | str | list[str] | NDArray[np.generic]

_TYPES = {
    0: "f32", 1: "f16", 2: "q4_0", 3: "q4_1", 6: "q5_0", 7: "q5_1", 8: "q8_0",
    10: "q2_k", 11: "q3_k", 12: "q4_k", 13: "q5_k", 14: "q6_k", 30: "bf16",
}  # fmt: skip
_SCALARS: dict[int, str] = {
    0: "<B",
    1: "<b",
    2: "<H",
    3: "<h",
    4: "<I",
    5: "<i",
    6: "<f",
    7: "<?",
    10: "<Q",
    11: "<q",
    12: "<d",
}
_STRING, _ARRAY = 8, 9
_BYTES: np.dtype[np.generic] = np.dtype(np.uint8)
_MAX_DIMS = 4


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """One entry of the directory. `shape` is outermost first (GGUF reverses it), `offset` from the file's start."""

    name: str
    format: str
    shape: tuple[int, ...]
    offset: int
    num_bytes: int


class GgufFile:
    """An opened file: `metadata` (scalars, strings, lists of strings, numeric arrays) and `tensors` by GGUF name."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._map = map_file(path)
        self._pages = PageBudget(self._map)
        cursor = _Cursor(self._map, path)
        num_tensors, num_keys = _header(cursor)
        self.metadata = _metadata(cursor, num_keys)
        self.tensors = _directory(cursor, num_tensors, _alignment(self.metadata, path))

    def tensor(self, name: str) -> StoredTensor:
        """The stored bytes of one tensor, a view of the map. Raises ModelError for a name that the file lacks."""
        info = self.tensors.get(name)
        if info is None:
            raise ModelError(
                f"{self.path} has no tensor {name!r}",
                hint=FETCH_AGAIN,
            )
        self._pages.hand_out(info.num_bytes)
        if info.format in PLAIN:
            dtype, shape = PLAIN[info.format], info.shape
        else:
            dtype, shape = _BYTES, (*info.shape[:-1], row_bytes(info.format, info.shape[-1]))
        raw = np.frombuffer(self._map, dtype, info.num_bytes // dtype.itemsize, info.offset).reshape(shape)
        return StoredTensor(name, info.format, info.shape, raw)


class _Cursor:
    """Reads forward through the map; `what` names the item being read in errors."""

    def __init__(self, data: mmap.mmap, path: Path) -> None:
        self.data = data
        self.path = path
        self.end = len(data)
        self.at = 0

    def fail(self, problem: str) -> ModelError:
        return ModelError(
            f"{self.path} is damaged: {problem} (byte {self.at} of {self.end})", hint="download the file again"
        )

    def need(self, size: int, what: str) -> None:
        if size > self.end - self.at:
            raise self.fail(f"the file ends inside {what}, which needs {size} bytes, {self.end - self.at} are left")

    def scalar(self, code: str, what: str) -> int | float | bool:
        size = struct.calcsize(code)
        self.need(size, what)
        (value,) = struct.unpack_from(code, self.data, self.at)
        self.at += size
        result: int | float | bool = value
        return result

    def count(self, code: str, what: str) -> int:
        return int(self.scalar(code, what))

    def string(self, what: str) -> str:
        size = self.count("<Q", what)
        self.need(size, what)
        raw = self.data[self.at : self.at + size]
        self.at += size
        try:
            return raw.decode("utf-8")
        except UnicodeDecodeError:
            raise self.fail(f"{what} is not UTF-8") from None


def _header(cursor: _Cursor) -> tuple[int, int]:
    """(tensors, keys) after the magic and the version have been checked."""
    magic, folder = cursor.data[:4], cursor.path.parent
    if magic != b"GGUF":
        raise ModelError(
            f"{cursor.path} is not a GGUF file: it begins with {magic!r}, expected b'GGUF'",
            hint=f"-m {folder}" if (folder / "config.json").is_file() else GIVE_A_MODEL,
        )
    cursor.at = 4
    version = cursor.count("<I", "the version")
    if version and version & 0xFFFF == 0:
        raise UnsupportedModelError(
            f"{cursor.path} is a big-endian GGUF file; only little endian is read",
            hint=f"gguf-convert-endian {cursor.path} little   turns it round in place",
        )
    if version not in (2, 3):
        raise UnsupportedModelError(
            f"{cursor.path} has GGUF version {version}; versions 2 and 3 are read",
            hint="a newer conversion of the model" if version < 2 else "pip install --upgrade medusakit",
        )
    return cursor.count("<Q", "the number of tensors"), cursor.count("<Q", "the number of keys")


def _metadata(cursor: _Cursor, num_keys: int) -> dict[str, Value]:
    metadata: dict[str, Value] = {}
    for index in range(num_keys):
        key = cursor.string(f"the name of key {index}")
        if key in metadata:
            raise cursor.fail(f"the key {key!r} occurs twice")
        metadata[key] = _value(cursor, cursor.count("<I", f"the type of {key!r}"), key)
    return metadata


def _value(cursor: _Cursor, kind: int, key: str) -> Value:
    what = f"the value of {key!r}"
    if kind in _SCALARS:
        return cursor.scalar(_SCALARS[kind], what)
    if kind == _STRING:
        return cursor.string(what)
    if kind == _ARRAY:
        return _array(cursor, key, what)
    raise cursor.fail(f"{what} has the unknown type {kind}")


def _array(cursor: _Cursor, key: str, what: str) -> Value:
    kind = cursor.count("<I", what)
    length = cursor.count("<Q", what)
    if kind == _STRING:
        cursor.need(8 * length, what)
        return [cursor.string(what) for _ in range(length)]
    if kind not in _SCALARS:
        raise cursor.fail(f"{what} is an array of the unknown type {kind}")
    dtype: np.dtype[np.generic] = np.dtype(_SCALARS[kind].lstrip("<") if kind == 7 else _SCALARS[kind])
    cursor.need(dtype.itemsize * length, what)
    # a copy: metadata outlives the map's pages and its alignment is arbitrary
    values = np.frombuffer(cursor.data, dtype, length, cursor.at).copy()
    cursor.at += dtype.itemsize * length
    return values


def _alignment(metadata: dict[str, Value], path: Path) -> int:
    value = metadata.get("general.alignment", 32)
    if not isinstance(value, int) or value <= 0 or value & (value - 1):
        raise ModelError(
            f"{path} is damaged: general.alignment is {value!r}, expected a power of two",
            hint=FETCH_AGAIN,
        )
    return value


def _directory(cursor: _Cursor, num_tensors: int, alignment: int) -> dict[str, TensorInfo]:
    entries = [_entry(cursor, index) for index in range(num_tensors)]
    start = -(-cursor.at // alignment) * alignment
    tensors: dict[str, TensorInfo] = {}
    for name, format, shape, offset in entries:
        if name in tensors:
            raise cursor.fail(f"the tensor {name!r} occurs twice")
        tensors[name] = _place(cursor, name, format, shape, start + offset)
    return tensors


def _entry(cursor: _Cursor, index: int) -> tuple[str, str, tuple[int, ...], int]:
    """(name, format, shape, offset from the data section)"""
    name = cursor.string(f"the name of tensor {index}")
    what = f"the entry of tensor {name!r}"
    num_dims = cursor.count("<I", what)
    if not 1 <= num_dims <= _MAX_DIMS:
        raise cursor.fail(f"tensor {name!r} has {num_dims} dimensions, expected 1 to {_MAX_DIMS}")
    shape = tuple(cursor.count("<Q", what) for _ in range(num_dims))[::-1]
    kind = cursor.count("<I", what)
    if kind not in _TYPES:
        raise UnsupportedModelError(
            f"{cursor.path}: tensor {name!r} has the GGUF type {_type_name(kind)}; supported: {', '.join(FORMATS)}",
            hint="use a file quantised to Q8_0, Q4_0, Q4_K_M or similar",
        )
    return name, _TYPES[kind], shape, cursor.count("<Q", what)


def _place(cursor: _Cursor, name: str, format: str, shape: tuple[int, ...], offset: int) -> TensorInfo:
    if 0 in shape:
        raise cursor.fail(f"tensor {name!r} has the shape {list(shape)}")
    rows = 1
    for size in shape[:-1]:
        rows *= size
    try:
        num_bytes = rows * row_bytes(format, shape[-1])
    except ModelError as error:
        raise cursor.fail(f"tensor {name!r}: {error.message}") from None
    if offset + num_bytes > cursor.end:
        raise ModelError(
            f"{cursor.path} is truncated: tensor {name!r} lies at bytes {offset} to {offset + num_bytes}, "
            f"but the file has {cursor.end}",
            hint="download the file again",
        )
    if offset % PLAIN.get(format, _BYTES).itemsize:
        raise cursor.fail(f"tensor {name!r} begins at the unaligned byte {offset}")
    return TensorInfo(name, format, shape, offset, num_bytes)


def _type_name(kind: int) -> str:
    from gguf import GGMLQuantizationType

    names = {int(member): str(member.name) for member in GGMLQuantizationType}
    return names.get(kind, f"number {kind} (unknown)")
