"""The KV cache: one block of memory each for keys and values of all layers and rows, written in place by the graph."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from medusakit.errors import RuntimeFailure
from medusakit.tree.topology import FloatArray, IntArray

SLICE = 16  # columns of a value that are multiplied together (see `attention`)
_STEP = 64


class KvCache:
    """A slot holds one row, a cell one position of it (see `cells`).

    keys    [layers, slots, kv_heads, 1, cells, head_dim] float32
    values  [layers, slots, kv_heads, head_dim / 16, cells, 16]

    A range of slots of one layer is contiguous, so any range binds as a batch. Memory is zero until it is written (a
    closed cell is multiplied by zero, so it must be finite), and costs nothing until then.
    """

    def __init__(self, num_layers: int, kv_heads: int, head_dim: int) -> None:
        self._shape = num_layers, kv_heads, head_dim
        self.clear()

    def clear(self) -> None:
        """Give the memory back; nothing is held any more."""
        layers, heads, size = self._shape
        self.keys: FloatArray = np.zeros((layers, 0, heads, 1, 0, size), np.float32)
        self.values: FloatArray = np.zeros((layers, 0, heads, size // SLICE, 0, SLICE), np.float32)
        self._written: list[int] = []

    @property
    def num_slots(self) -> int:
        return int(self.keys.shape[1])

    @property
    def capacity(self) -> int:
        """Cells of a row."""
        return int(self.keys.shape[4])

    def has_room(self, num_slots: int, cells: int) -> bool:
        return num_slots <= self.num_slots and cells <= self.capacity

    def grow(self, num_slots: int, cells: int, held: Sequence[int]) -> None:
        """Make room for `num_slots` rows of `cells`, keeping the first `held[slot]` of each. The memory moves."""
        self._allocate(max(num_slots, self.num_slots), max(_with_reserve(cells), self.capacity), held)

    def shrink(self, held: Sequence[int]) -> bool:
        """Give back what a long row that left made necessary, if it is more than half: attention reads all cells of
        every row. False: the memory stays where it is."""
        capacity = _with_reserve(max(held))
        if self.capacity < 2 * capacity:
            return False
        self._allocate(self.num_slots, capacity, held)
        return True

    def _allocate(self, slots: int, capacity: int, held: Sequence[int]) -> None:
        self.keys = _enlarged(self.keys, slots, capacity, held)
        self.values = _enlarged(self.values, slots, capacity, held)
        self._written = [*held, *[0] * (slots - len(held))]

    def will_write(self, ends: Sequence[int]) -> None:
        """A pass may write cells of the first slots up to these (exclusive); `wipe` then knows what there is."""
        for slot, end in enumerate(ends):
            self._written[slot] = max(self._written[slot], end)

    def wipe(self, slot: int, held: int = 0) -> None:
        """Zero whatever the slot holds from cell `held` on, which was another row's."""
        if slot >= len(self._written):  # before the first pass there is no memory at all
            return
        for memory in (self.keys, self.values) if self._written[slot] > held else ():
            memory[:, slot, :, :, held : self._written[slot]] = 0
        self._written[slot] = held

    def move(self, slot: int, sources: IntArray, targets: IntArray) -> None:
        """Copy cells `sources` of the row to `targets`, all at once: a commit."""
        for row in (self.keys[:, slot], self.values[:, slot]):
            row[:, :, :, targets] = row[:, :, :, sources]

    def fill(self, slot: int, held: int) -> None:
        """Write the first `held` cells, so that a pass has memory to read: what was never written is one zero page,
        which the processor's caches hold however long the row is."""
        for memory in (self.keys, self.values):
            memory[:, slot, :, :, :held] = 0.01
        self._written[slot] = max(self._written[slot], held)

    def copy_slot(self, source: int, target: int, held: int) -> None:
        """The target's row is gone; nothing of it is left."""
        for memory in (self.keys, self.values) if held else ():
            memory[:, target, :, :, :held] = memory[:, source, :, :, :held]
        self.wipe(target, held)

    def save(self, slot: int, held: int) -> tuple[FloatArray, FloatArray]:
        """Copies of the first `held` cells: [layers, kv_heads, 1 or slices, held, columns] each."""
        return self.keys[:, slot, :, :, :held].copy(), self.values[:, slot, :, :, :held].copy()

    def restore(self, slot: int, saved: Sequence[FloatArray], held: int) -> None:
        for memory, part in zip((self.keys, self.values), saved, strict=True):
            memory[:, slot, :, :, :held] = part[:, :, :, :held]


def _enlarged(old: FloatArray, slots: int, capacity: int, held: Sequence[int]) -> FloatArray:
    layers, _, kv_heads, slices, _, size = old.shape
    shape = (layers, slots, kv_heads, slices, capacity, size)
    try:
        new: NDArray[np.float32] = np.zeros(shape, np.float32)
    except (MemoryError, ValueError):  # ValueError: more than an address can count
        total = 2 * 4 * np.prod(shape, dtype=np.float64) / 2**20
        raise RuntimeFailure(
            f"no memory for a KV cache of {total:.0f} MiB ({slots} rows of {capacity} positions)",
            hint="a smaller --max-context, or fewer rows",
        ) from None
    for slot, free in enumerate(held[: old.shape[1]]):
        cells = min(free, old.shape[4])  # the first free cell may be that of a block still to come
        new[:, slot, :, :, :cells] = old[:, slot, :, :, :cells]
    return new


def _with_reserve(cells: int) -> int:
    """A little more than is needed now, in whole steps: attention reads all cells, so spare ones cost time, and
    every growth copies the memory."""
    return -(-(cells + cells // 32) // _STEP) * _STEP
