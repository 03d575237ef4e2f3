"""The KV of all rows in buffers that stay where they are: of each shape one, all layers' keys and values together.

A pass prepared for a shape writes by cell numbers that lie in a tensor, and reads a fixed part; padding goes to a cell
that nobody reads. So a captured graph holds for whatever the rows have grown to, until the buffers have to be larger.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from medusakit.runtimes.torch.cache import Place, TreeCache, TreeLayer
from medusakit.runtimes.torch.device.buckets import ALIGNED, MAX_NODES, Bucket, capacity, rows_bucket


@dataclass(slots=True)
class Target:
    """Where a prepared pass writes: node i of row r to cell `cells[r, i]` of slot r. bucket: what it reads."""

    rows: Any
    cells: Any
    bucket: Bucket


class PooledLayer(TreeLayer):
    """Keys and values of one layer: views of pools, once the first pass has shown their sizes."""

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self.target: Target | None = None

    def update(self, key_states: Any, value_states: Any, *args: Any, **kwargs: Any) -> tuple[Any, Any]:
        if self.target is None:
            return super().update(key_states, value_states, *args, **kwargs)
        rows, cells, bucket = self.target.rows, self.target.cells, self.target.bucket
        self.keys[rows, :, cells] = key_states.transpose(1, 2)
        self.values[rows, :, cells] = value_states.transpose(1, 2)
        return self.keys[: bucket.rows, :, : bucket.cells], self.values[: bucket.rows, :, : bucket.cells]

    def get_seq_length(self) -> int:
        """Of a prepared pass: the same number at every step, since a graph would keep the first."""
        if self.target is None:
            return super().get_seq_length()
        return self.target.bucket.cells - self.target.bucket.nodes


class PooledCache(TreeCache):
    """max_rows, max_cells: what a model's limits allow. version: counts how often the buffers moved."""

    layer_type = PooledLayer

    def __init__(self, num_layers: int, max_rows: int, max_context: int) -> None:
        super().__init__(num_layers)
        self._max_rows = max_rows
        self._max_cells = -(-(max_context + MAX_NODES) // ALIGNED) * ALIGNED
        self._pools: list[Any] = []
        self.version = 0

    @property
    def ready(self) -> bool:
        """A pass has shown what the layers hold."""
        return any(layer.is_initialized for layer in self.layers)

    @property
    def num_slots(self) -> int:
        return self._place.num_slots

    @property
    def num_cells(self) -> int:
        """Of a slot, without the one for padding, which is the last."""
        return self._place.cells - 1

    def aim(self, slots: Sequence[int], starts: Sequence[int], count: int) -> None:
        super().aim(slots, starts, count)
        self._fit()

    @contextmanager
    def aimed(self, target: Target) -> Iterator[None]:
        """The passes inside are prepared ones."""
        for layer in self.layers:
            layer.target = target
        try:
            yield
        finally:
            for layer in self.layers:
                layer.target = None

    @torch.inference_mode()  # type: ignore[untyped-decorator]
    def move(self, slot: int, cells: Sequence[int], start: int) -> None:
        for pool in self._pools:
            source = torch.tensor(list(cells), device=pool.device)
            pool[:, slot, :, start : start + len(cells)] = pool[:, slot].index_select(2, source)

    def clear(self) -> None:
        super().clear()
        self._pools = []
        self.version += 1

    def _reserve(self, slots: int, cells: int) -> None:
        place = self._place
        place.num_slots = max(place.num_slots, rows_bucket(slots, self._max_rows))
        place.cells = max(place.cells, capacity(cells, max(cells, self._max_cells)) + 1)

    @torch.inference_mode()  # type: ignore[untyped-decorator]
    def _fit(self) -> None:
        """Bring what the layers hold into pools that are large enough."""
        place = self._place
        held = [layer for layer in self.layers if layer.is_initialized]
        size = (place.num_slots, place.cells)
        if all((layer.keys.shape[0], layer.keys.shape[2]) == size for layer in held) and bool(self._pools) == bool(
            held
        ):
            return
        groups: dict[Any, list[tuple[Any, str]]] = {}
        for layer in held:
            for name in ("keys", "values"):
                buffer = getattr(layer, name)
                key = (buffer.shape[1], buffer.shape[3], buffer.dtype, buffer.device)
                groups.setdefault(key, []).append((layer, name))
        self._pools = [self._pooled(members) for members in groups.values()]
        self.version += 1

    def _pooled(self, members: Sequence[tuple[Any, str]]) -> Any:
        """[buffers, slots, kv heads, cells, head size] of buffers of one kind, which become views of it."""
        first, place = getattr(*members[0]), self._place
        pool = first.new_zeros(len(members), place.num_slots, first.shape[1], place.cells, first.shape[3])
        for view, (layer, name) in zip(pool, members, strict=True):
            old = getattr(layer, name)
            view[: old.shape[0], :, : old.shape[2]] = old
            setattr(layer, name, view)
        return pool
