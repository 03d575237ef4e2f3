"""The KV of all rows as a transformers cache: one buffer a layer, written in place, compacted in place.

A model's attention calls `update` with the keys and values of a pass; where they go was said before by `aim`. A slot
holds one row, a cell one position of it, and a tree's nodes lie in the cells after the row's positions until `move`
brings the accepted ones together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from transformers.cache_utils import Cache, CacheLayerMixin

STEP = 64  # cells that the buffers grow by, at least


@dataclass(slots=True)
class Place:
    """Where a pass writes: row i of the batch goes to `slots[i]`, from cell `starts[i]` on. num_slots and cells: what
    the buffers must hold; end: the cells that attention reads."""

    slots: list[int] = field(default_factory=list)
    starts: list[int] = field(default_factory=list)
    end: int = 0
    num_slots: int = 0
    cells: int = 0


class TreeLayer(CacheLayerMixin):  # type: ignore[misc]
    """Keys and values of one layer, [slots, kv heads, cells, head size]. Zero until written: a masked cell is
    multiplied by zero, so it must be finite."""

    is_sliding = False

    def __init__(self, place: Place) -> None:
        super().__init__()
        self._place = place

    def lazy_initialization(self, key_states: Any, value_states: Any) -> None:
        self.keys, self.values = _empty(key_states), _empty(value_states)
        self.is_initialized = True

    def update(self, key_states: Any, value_states: Any, *args: Any, **kwargs: Any) -> tuple[Any, Any]:
        """Write the pass's keys and values; everything that its rows may see."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        self.keys, self.values = self._roomy(self.keys), self._roomy(self.values)
        count, place = key_states.shape[2], self._place
        for index, (slot, start) in enumerate(zip(place.slots, place.starts, strict=True)):
            self.keys[slot, :, start : start + count] = key_states[index]
            self.values[slot, :, start : start + count] = value_states[index]
        return self._seen(self.keys), self._seen(self.values)

    def get_seq_length(self) -> int:
        return self._place.starts[0] if self._place.starts else 0

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self.get_seq_length() + query_length, 0

    def get_max_length(self) -> int:
        return -1

    def _seen(self, buffer: Any) -> Any:
        slots, end = self._place.slots, self._place.end
        if slots == list(range(slots[0], slots[0] + len(slots))):
            return buffer[slots[0] : slots[0] + len(slots), :, :end]  # a view: one row always comes here
        return buffer[slots, :, :end]

    def _roomy(self, buffer: Any) -> Any:
        place = self._place
        if buffer.shape[0] >= place.num_slots and buffer.shape[2] >= place.cells:
            return buffer
        grown = buffer.new_zeros(place.num_slots, buffer.shape[1], place.cells, buffer.shape[3])
        grown[: buffer.shape[0], :, : buffer.shape[2]] = buffer
        return grown


class TreeCache(Cache):  # type: ignore[misc]
    """See the module's text."""

    layer_type = TreeLayer

    def __init__(self, num_layers: int) -> None:
        self._place = Place()
        super().__init__(layers=[self.layer_type(self._place) for _ in range(num_layers)])

    def aim(self, slots: Sequence[int], starts: Sequence[int], count: int) -> None:
        """The next pass writes `count` cells a row from `starts` on in `slots`, and sees the cells up to the last."""
        place = self._place
        place.slots, place.starts, place.end = list(slots), list(starts), max(starts) + count
        self._reserve(max(slots) + 1, place.end)

    def _reserve(self, slots: int, cells: int) -> None:
        """What the buffers must hold from the next pass on."""
        place = self._place
        place.num_slots = max(place.num_slots, slots)
        if cells > place.cells:
            place.cells = cells + max(STEP, cells // 8)

    @torch.inference_mode()  # type: ignore[untyped-decorator]
    def move(self, slot: int, cells: Sequence[int], start: int) -> None:
        """Bring these cells to `start` and the cells after it."""
        for layer in self._held(slot):
            for buffer in (layer.keys, layer.values):
                buffer[slot, :, start : start + len(cells)] = buffer[slot][:, list(cells)]

    @torch.inference_mode()  # type: ignore[untyped-decorator]
    def wipe(self, slot: int) -> None:
        """Nothing of the row is left for another."""
        for layer in self._held(slot):
            layer.keys[slot].zero_()
            layer.values[slot].zero_()

    @torch.inference_mode()  # type: ignore[untyped-decorator]
    def save(self, slot: int, length: int) -> list[Any]:
        """Copies on the CPU of the first cells, [kv heads, length, head size] of keys and values layer by layer."""
        return [
            buffer[slot, :, :length].to("cpu", copy=True)
            for layer in self._held(slot)
            for buffer in (layer.keys, layer.values)
        ]

    @torch.inference_mode()  # type: ignore[untyped-decorator]
    def restore(self, slot: int, parts: Sequence[Any], length: int) -> None:
        """The first `length` cells of what `save` gave, in a slot that `aim` has made room for."""
        for index, layer in enumerate(self.layers):
            keys, values = parts[2 * index], parts[2 * index + 1]
            if not layer.is_initialized:
                layer.lazy_initialization(keys[None], values[None])
            layer.keys, layer.values = layer._roomy(layer.keys), layer._roomy(layer.values)
            layer.keys[slot, :, :length] = keys[:, :length]
            layer.values[slot, :, :length] = values[:, :length]

    @torch.inference_mode()  # type: ignore[untyped-decorator]
    def grow(self) -> None:
        """Bring layers that have been written before to the room that `aim` asked for."""
        for layer in self.layers:
            if layer.is_initialized:
                layer.keys, layer.values = layer._roomy(layer.keys), layer._roomy(layer.values)

    @property
    def num_bytes(self) -> int:
        """Of all buffers."""
        held = [layer for layer in self.layers if layer.is_initialized]
        return sum(int(layer.keys.nbytes) + int(layer.values.nbytes) for layer in held)

    def clear(self) -> None:
        """Give the memory back."""
        self._place.num_slots = self._place.cells = 0
        for layer in self.layers:
            layer.keys = layer.values = None
            layer.is_initialized = False

    def _held(self, slot: int) -> list[TreeLayer]:
        """Layers that hold something of the slot. A layer that shares another's KV never does."""
        return [layer for layer in self.layers if layer.is_initialized and slot < layer.keys.shape[0]]


def _empty(states: Any) -> Any:
    _, heads, _, size = states.shape
    return torch.zeros(0, heads, 0, size, dtype=states.dtype, device=states.device)
