"""One shard of a training set: answers of the model and the hidden states that produced them.

A safetensors file with S samples, G the number of generated tokens of a sample:

    ids          int32   [sum of (P + G)]  prompt and answer of every sample, concatenated
    offsets      int64   [S + 1]           where each sample begins in `ids`
    prompt_lens  int32   [S]               P of each sample
    hidden       float16 [sum of G, d]     row j of a sample: hidden state after the final norm at position P - 1 + j
    groups       int64   [S]               samples of one conversation share it; held-out data is split by it
    turns        int32   [S]               which answer of its conversation, from 0

So for row j of a sample the root is gen[j] and the label of head k (0-based) is gen[j + 1 + k].
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save

from medusakit.errors import DatasetError

_DTYPES: dict[str, np.dtype[Any]] = {"I32": np.dtype("<i4"), "I64": np.dtype("<i8"), "F16": np.dtype("<f2")}
_AGAIN = "remove it and distill again (only its samples are made anew)"
_LAYOUT = {"ids": "I32", "offsets": "I64", "prompt_lens": "I32", "hidden": "F16", "groups": "I64", "turns": "I32"}


@dataclass(frozen=True, slots=True)
class Sample:
    """One answer. ids [P + G] int32, hidden [G, d] float16; `group` and `turn` as in the module's text."""

    ids: NDArray[np.int32]
    prompt_len: int
    hidden: NDArray[np.float16]
    group: int
    turn: int = 0

    @property
    def num_generated(self) -> int:
        return len(self.ids) - self.prompt_len

    @property
    def gen(self) -> NDArray[np.int32]:
        return self.ids[self.prompt_len :]


def group_of(first_prompt_ids: Sequence[int]) -> int:
    """A conversation's number, from the ids of its first prompt: the same prompt falls on the same side of a split."""
    digest = hashlib.sha256(np.asarray(first_prompt_ids, dtype="<i4").tobytes()).digest()
    return int.from_bytes(digest[:8], "little") >> 1


def shard_bytes(samples: Sequence[Sample]) -> bytes:
    """The file's content."""
    lengths = [len(sample.ids) for sample in samples]
    content: bytes = save(
        {
            "ids": np.concatenate([sample.ids for sample in samples]).astype(np.int32),
            "offsets": np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
            "prompt_lens": np.array([sample.prompt_len for sample in samples], dtype=np.int32),
            "hidden": np.concatenate([sample.hidden for sample in samples]).astype(np.float16),
            "groups": np.array([sample.group for sample in samples], dtype=np.int64),
            "turns": np.array([sample.turn for sample in samples], dtype=np.int32),
        }
    )
    return content


class Shard:
    """A shard on disk, mapped into memory: only what is looked at is read.

    Raises DatasetError naming the file if it is not a complete shard.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        tensors = map_tensors(path)
        if missing := [name for name in _LAYOUT if name not in tensors]:
            raise DatasetError(
                f"{path} is not a training shard: it has no tensor {missing[0]}",
                hint=_AGAIN,
            )
        self._ids, self.offsets, self.prompt_lens, self._hidden, self.groups, self.turns = (
            tensors[name] for name in _LAYOUT
        )
        self.num_generated = np.diff(self.offsets) - self.prompt_lens
        self._rows = np.concatenate([[0], np.cumsum(self.num_generated)])
        if int(self.offsets[-1]) != len(self._ids) or int(self._rows[-1]) != len(self._hidden):
            raise DatasetError(
                f"{path} contradicts itself: {len(self._ids)} ids and {len(self._hidden)} states for "
                f"{int(self.offsets[-1])} and {int(self._rows[-1])} expected",
                hint=_AGAIN,
            )

    def __len__(self) -> int:
        return len(self.prompt_lens)

    @property
    def hidden_size(self) -> int:
        return int(self._hidden.shape[1])

    @property
    def num_tokens(self) -> int:
        """Generated tokens."""
        return int(self._rows[-1])

    def __getitem__(self, index: int) -> Sample:
        begin, end = int(self.offsets[index]), int(self.offsets[index + 1])
        hidden = self._hidden[int(self._rows[index]) : int(self._rows[index + 1])]
        return Sample(
            self._ids[begin:end], int(self.prompt_lens[index]), hidden, int(self.groups[index]), int(self.turns[index])
        )


def map_tensors(path: Path) -> dict[str, NDArray[Any]]:
    """A safetensors file's tensors as read-only memory maps (the safetensors package would copy them)."""
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            header_size = int.from_bytes(file.read(8), "little")
            if not 2 <= header_size <= size - 8:
                raise ValueError("its header is longer than the file")
            header = json.loads(file.read(header_size))
        return {
            name: _map_one(path, entry, 8 + header_size, size)
            for name, entry in header.items()
            if name != "__metadata__"
        }
    except FileNotFoundError as cause:
        raise DatasetError(f"{path} is missing", hint=_AGAIN) from cause
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as cause:
        raise DatasetError(
            f"{path} is damaged or cut short: {cause}",
            hint=_AGAIN,
        ) from cause


def _map_one(path: Path, entry: Mapping[str, Any], base: int, size: int) -> NDArray[Any]:
    shape, (begin, end) = tuple(map(int, entry["shape"])), map(int, entry["data_offsets"])
    dtype: np.dtype[Any] = _DTYPES[entry["dtype"]]
    if base + end > size or math.prod(shape) * dtype.itemsize != end - begin:
        raise ValueError(f"{size} bytes do not hold its tensors")
    if begin == end:
        return np.zeros(shape, dtype)
    return np.memmap(path, dtype, "r", base + begin, shape)
