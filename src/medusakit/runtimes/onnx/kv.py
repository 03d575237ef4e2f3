"""The KV cache: one block of memory each for keys and values of all layers and rows, written in place by the graph."""

from __future__ import annotations

import math
import mmap
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from medusakit.errors import RuntimeFailure
from medusakit.tree.topology import FloatArray, IntArray

SLICE = 16  # columns of a value that are multiplied together (see `attention`)
KEPT_BYTES = 256 << 20  # of memory that there is from the first row on, and stays after the last
PATIENCE = 256  # rows that leave before memory is given back of which none of them needed half
_STEP = 64
_NOTHING = np.zeros(0, np.float32)
_LARGE_PAGES: int | None = getattr(mmap, "MADV_HUGEPAGE", None)  # Linux only


@dataclass(frozen=True, slots=True)
class _Memory:
    """What keys and values lie at the front of, each [n] float32."""

    keys: FloatArray
    values: FloatArray

    @property
    def num_bytes(self) -> int:
        return self.keys.nbytes + self.values.nbytes


class KvCache:
    """A slot holds one row, a cell one position of it (see `cells`).

    keys    [layers, slots, kv_heads, 1, cells, head_dim] float32
    values  [layers, slots, kv_heads, head_dim / 16, cells, 16]

    A range of slots of one layer is contiguous, so any range binds as a batch. How many slots and cells there are
    follows the rows. The memory behind them stays: a process that gave it back would grow and shrink with every long
    row, and pay for new pages each time. What was never written of it costs nothing. A pass multiplies closed cells by
    zero, so they must be finite: where a row has not written, its slot is zero.
    """

    def __init__(self, num_layers: int, kv_heads: int, head_dim: int) -> None:
        self._shape = num_layers, kv_heads, head_dim
        self._memory = _Memory(_NOTHING, _NOTHING)
        self.clear()

    def clear(self) -> None:
        """Nothing is held any more. Of the memory, no more than KEPT_BYTES stays."""
        if self._memory.num_bytes > KEPT_BYTES:
            self._memory = _Memory(_NOTHING, _NOTHING)
        self.keys, self.values = self._laid_out(self._memory, 0, 0)
        self._written: list[int] = []
        self._oversized = 0

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
        """A row has left. Take off the cells that only it needed, if they are more than half: attention reads all cells
        of every row. False: nothing was moved."""
        capacity = min(_with_reserve(max(held)), self.capacity)
        needed = self._num_bytes(self.num_slots, capacity)
        self._oversized = self._oversized + 1 if self._memory.num_bytes > max(KEPT_BYTES, 2 * needed) else 0
        if self.capacity < 2 * capacity and self._oversized <= PATIENCE:
            return False
        self._allocate(self.num_slots, capacity, held)
        return True

    def _allocate(self, slots: int, capacity: int, held: Sequence[int]) -> None:
        """Lay out anew, in the memory that there is if it is large enough and not far too large for too long."""
        in_place = self._num_bytes(slots, capacity) <= self._memory.num_bytes and self._oversized <= PATIENCE
        memory = self._memory if in_place else self._new_memory(slots, capacity)
        self._oversized = self._oversized if in_place else 0
        old, new = (self.keys, self.values), self._laid_out(memory, slots, capacity)
        cells = [min(free, self.capacity) for free in held[: self.num_slots]]  # a free cell may be of a block to come
        for source, target in zip(old, new, strict=True):
            _move_layers(source, target, cells)
        self._memory, (self.keys, self.values) = memory, new
        self._written = [capacity if in_place else 0] * slots
        for slot in range(len(held)):
            self.wipe(slot, cells[slot] if slot < len(cells) else 0)

    def _num_bytes(self, slots: int, capacity: int) -> int:
        return 2 * 4 * math.prod(self._shape) * slots * capacity

    def _new_memory(self, slots: int, capacity: int) -> _Memory:
        num_bytes = self._num_bytes(slots, capacity)
        try:
            return _Memory(*(_pages(max(num_bytes, KEPT_BYTES) // 8) for _ in range(2)))
        except MemoryError:
            raise RuntimeFailure(
                f"no memory for a KV cache of {num_bytes / 2**20:.0f} MiB ({slots} rows of {capacity} positions)",
                hint="a smaller --max-context, or fewer rows",
            ) from None

    def _laid_out(self, memory: _Memory, slots: int, capacity: int) -> tuple[FloatArray, FloatArray]:
        """Keys and values at the front of the memory, in the shapes that the class describes."""
        layers, heads, size = self._shape
        count = math.prod(self._shape) * slots * capacity
        return (
            memory.keys[:count].reshape(layers, slots, heads, 1, capacity, size),
            memory.values[:count].reshape(layers, slots, heads, size // SLICE, capacity, SLICE),
        )

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
        return _apart(self.keys[:, slot, :, :, :held]), _apart(self.values[:, slot, :, :, :held])

    def restore(self, slot: int, saved: Sequence[FloatArray], held: int) -> None:
        for memory, part in zip((self.keys, self.values), saved, strict=True):
            memory[:, slot, :, :, :held] = part[:, :, :, :held]


def _move_layers(old: FloatArray, new: FloatArray, held: Sequence[int]) -> None:
    """Copy the first `held[slot]` cells of each slot. The two may begin at the same address: layers are taken in the
    order in which none is written over before it was read."""
    layers = range(len(old))
    for layer in layers if new.size <= old.size else reversed(layers):
        rows = [old[layer, slot, :, :, :cells].copy() for slot, cells in enumerate(held)]
        for slot, row in enumerate(rows):
            new[layer, slot, :, :, : held[slot]] = row


def _apart(cells: FloatArray) -> FloatArray:
    copy = _pages(cells.size).reshape(cells.shape)
    copy[:] = cells
    return copy


def _pages(count: int) -> FloatArray:
    """Zeros in pages of their own, which the system has back as soon as they are gone: in the allocator's heap, arrays
    of all sizes that come and go leave holes, worth more than a server's prefix cache. Raises MemoryError."""
    try:
        pages = mmap.mmap(-1, max(1, 4 * count), access=mmap.ACCESS_COPY)
    except (OSError, OverflowError) as error:
        raise MemoryError(f"no memory for {4 * count} bytes") from error
    if _LARGE_PAGES is not None:
        pages.madvise(_LARGE_PAGES)  # fewer of them to be made on first use
    return np.frombuffer(pages, np.float32, count)


def _with_reserve(cells: int) -> int:
    """A little more than is needed now, in whole steps: attention reads all cells, so spare ones cost time, and
    every growth copies the memory."""
    return -(-(cells + cells // 32) // _STEP) * _STEP
