"""The KV cache: one block of memory for all layers and rows, written in place by the graph."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from medusakit.errors import RuntimeFailure

_BLOCK = 256


class KvCache:
    """buffer [2 * layers, slots, kv_heads, capacity, head_dim] float32: keys of layer i at 2i, values at 2i + 1.

    A slot holds one row. A range of slots of one layer is contiguous, so any range binds as a batch.
    Memory is reserved by `np.empty`, so pages that no position has reached cost nothing.
    """

    def __init__(self, num_layers: int, kv_heads: int, head_dim: int) -> None:
        self.buffer: NDArray[np.float32] = np.empty((2 * num_layers, 0, kv_heads, 0, head_dim), np.float32)

    @property
    def num_slots(self) -> int:
        return int(self.buffer.shape[1])

    @property
    def capacity(self) -> int:
        return int(self.buffer.shape[3])

    def has_room(self, num_slots: int, positions: int) -> bool:
        return num_slots <= self.num_slots and positions <= self.capacity

    def grow(self, num_slots: int, positions: int, lengths: Sequence[int]) -> None:
        """Make room for `num_slots` rows of `positions`, keeping `lengths[slot]` of each. The memory moves."""
        old = self.buffer
        slots = max(num_slots, self.num_slots)
        self.buffer = self._allocate(slots, max(self.capacity, _in_blocks(positions)))
        for slot, length in enumerate(lengths[: old.shape[1]]):
            self.buffer[:, slot, :, :length] = old[:, slot, :, :length]

    def keep(self, slot: int, length: int, nodes: Sequence[int]) -> None:
        """Nodes (increasing) written after `length` positions become positions length, length + 1, ...: a commit."""
        misplaced = [(target, node) for target, node in enumerate(nodes) if target != node]
        if misplaced:
            targets, sources = length + np.array(misplaced).T
            row = self.buffer[:, slot]
            row[:, :, targets[0] : targets[-1] + 1] = row[:, :, sources]

    def copy_slot(self, source: int, target: int, length: int) -> None:
        if length:  # before the first pass there is no memory at all
            self.buffer[:, target, :, :length] = self.buffer[:, source, :, :length]

    def _allocate(self, slots: int, capacity: int) -> NDArray[np.float32]:
        layers, _, kv_heads, _, head_dim = self.buffer.shape
        shape = (layers, slots, kv_heads, capacity, head_dim)
        try:
            return np.empty(shape, np.float32)
        except (MemoryError, ValueError):  # ValueError: more than an address can count
            size = 4 * np.prod(shape, dtype=np.float64) / 2**20
            raise RuntimeFailure(
                f"no memory for a KV cache of {size:.0f} MiB ({slots} rows of {capacity} positions)",
                hint="a smaller --max-context, or fewer rows",
            ) from None


def _in_blocks(positions: int) -> int:
    """Half as much again as is needed now, in whole blocks: few reallocations on the way to a long context."""
    return -(-(positions + positions // 2) // _BLOCK) * _BLOCK
