"""The torch runtime with passes of fixed shapes: on a CUDA device captured as graphs, elsewhere called as they are.

Prompts run as in `TorchRuntime`; trees of up to 64 nodes run as prepared steps over the same KV. Row i of a step is
slot i, so that nothing is gathered; slots in between that do not take part are padding.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from medusakit.models.spec import ModelSpec
from medusakit.runtimes.base import Capabilities, Scores
from medusakit.runtimes.rows import Segment
from medusakit.runtimes.torch.cache import TreeCache
from medusakit.runtimes.torch.device.attention import TreeAttention, tree_attention_for
from medusakit.runtimes.torch.device.buckets import (
    FIRST_CELLS,
    NODES,
    Bucket,
    cells_bucket,
    nodes_bucket,
    rows_bucket,
)
from medusakit.runtimes.torch.device.graphs import Capture, Graphs, capture_for
from medusakit.runtimes.torch.device.packed import PackedScores
from medusakit.runtimes.torch.device.pools import PooledCache
from medusakit.runtimes.torch.device.step import READER_WIDTH, Buffers, Ints32, Reader, Result, Step
from medusakit.runtimes.torch.model import CausalModel
from medusakit.runtimes.torch.runtime import TorchRuntime, failing
from medusakit.tree.topology import IntArray, Topology, Tree

_KEPT_SHAPES = 512
KEPT_CELLS = 4 * FIRST_CELLS  # a slot that buffers keep when no row is left


@dataclass(frozen=True, slots=True)
class Told:
    """What the reader said of a row, if it goes on from `start` with `ids`: accepted tokens and the next root."""

    start: int
    ids: tuple[int, ...]
    numbers: Ints32


class DeviceRuntime(TorchRuntime):
    """A `TorchRuntime` for models that run trees.

    capture    what turns a step into something that is replayed; by default what the model's device has
    attention  what steps attend with
    """

    _cache: PooledCache

    def __init__(
        self,
        model: CausalModel,
        spec: ModelSpec,
        capabilities: Capabilities,
        windows: Mapping[str, int],
        capture: Callable[[Any], Capture | None] = capture_for,
        attention: Callable[[CausalModel, ModelSpec], TreeAttention] = tree_attention_for,
    ) -> None:
        super().__init__(model, spec, capabilities, windows)
        self.attention = attention(model, spec)
        self._kinds = windows
        self._capture = capture(model.device)
        self._graphs = Graphs(self._capture, self._runs_eagerly)
        self._buffers: Buffers | None = None
        self._steps: dict[Bucket, Step] = {}
        self._version = -1
        self._shapes: dict[Topology, IntArray] = {}
        self._reader: Callable[[], Reader | None] = _nobody  # weakly held: heads that are swapped out leave
        self._told: dict[int, Told] = {}
        self._grown_to_time = False  # for rows that were filled, which may be longer than texts are

    @property
    def graphs(self) -> Graphs:
        return self._graphs

    def new_graphs(self) -> Graphs:
        """For what else runs on the device between steps; they share the steps' memory."""
        return Graphs(self._capture, lambda reason: None)

    def attach(self, reader: Reader) -> bool:
        """Let `reader` work in every step of a tree from now on, as long as it lives. False where another does, or
        where it says more than there is room for."""
        known = self._reader()
        if known is None and reader.width <= READER_WIDTH:
            self._reader = weakref.ref(reader)
            self._told.clear()
            self._forget_trees()
            return True
        return known is reader

    def told(self, row: int) -> Told | None:
        """What the reader said in the row's last step."""
        return self._told.get(row)

    def drop_row(self, row: int) -> None:
        super().drop_row(row)
        self._told.pop(row, None)

    def fill(self, row: int, length: int) -> None:
        """Prepares the steps that will be timed too: a capture is no part of T(n)."""
        held = max(self._cache.num_cells, FIRST_CELLS)
        super().fill(row, length)
        if not self._cache.ready:
            self.forward([(row, Tree.plain(0))])
        for nodes in NODES:
            if length + nodes <= self.capabilities.max_context:
                self.forward([(row, Tree(Topology.chain(nodes - 1), np.zeros(nodes, np.int64)))])
        self._pending.pop(row, None)
        self._grown_to_time = self._grown_to_time or self._cache.num_cells > held

    def free(self) -> None:
        """Give the memory back; the model stays as it is, for another runtime."""
        self._cache.clear()
        self._forget_steps()

    def close(self) -> None:
        super().close()
        self._forget_steps()

    def _make_cache(self) -> TreeCache:
        return PooledCache(self._spec.num_layers, self._capabilities.max_rows, self._capabilities.max_context)

    def _idle(self) -> None:
        """Buffers stay, since graphs hold their addresses, unless they are large for what will come."""
        kept = FIRST_CELLS if self._grown_to_time else KEPT_CELLS
        self._grown_to_time = False
        if self._cache.num_cells > kept:
            self.free()

    def _scores(self, segments: Sequence[Segment]) -> Sequence[Scores]:
        width = nodes_bucket(max(segment.num_nodes for segment in segments))
        if width is None or not self._cache.ready:
            return super()._scores(segments)
        shapes = {segment.slot: (segment.ids, self._shape(segment), segment.length) for segment in segments}
        with failing(segments):
            step = self._step(segments, width)
            step.write(shapes)
            self._graphs.run(step.bucket, step)
            result = step.read()
        rows = {slot: row for row, slot in self._slots.items()}
        return [self._packed(step, result, rows[segment.slot], segment) for segment in segments]

    def _packed(self, step: Step, result: Result, row: int, segment: Segment) -> PackedScores:
        slot = segment.slot
        scores = PackedScores(result, slot, segment.num_nodes, step.logits[slot], step.hidden[slot])
        self._told.pop(row, None)
        if step.reads:
            ids = (*segment.ids[scores.path[1:]].tolist(), scores.argmax(scores.path[-1]))
            self._told[row] = Told(segment.length + 1, ids, result.extra[slot].copy())
        return scores

    def _step(self, segments: Sequence[Segment], width: int) -> Step:
        """The step of the bucket that holds these, over buffers that are large enough."""
        cache = self._cache
        slots, ends = [s.slot for s in segments], [s.length + s.num_nodes for s in segments]
        cache.aim(slots, [s.length for s in segments], max(s.num_nodes for s in segments))
        if cache.version != self._version:
            self._forget_steps()
            self._buffers, self._version = Buffers(self.model, cache.num_slots), cache.version
        if self._reader is not _nobody and self._reader() is None:
            self._reader = _nobody
            self._forget_trees()
        rows = rows_bucket(max(slots) + 1, cache.num_slots)
        bucket = Bucket(rows, width, cells_bucket(max(ends), cache.num_cells))
        if bucket not in self._steps:
            reader = self._reader if width > 1 else _nobody  # a plain step is mostly followed by one
            assert self._buffers is not None  # the cache's first version is not ours
            self._steps[bucket] = Step(self.model, cache, self._buffers, bucket, self._kinds, reader, self.attention)
        return self._steps[bucket]

    def _shape(self, segment: Segment) -> IntArray:
        """[3, n] parents, depths and ancestors of its nodes; policies keep one topology for each shape."""
        topology = segment.topology
        assert topology is not None  # chains without one are prompts, which do not come here
        if topology not in self._shapes:
            if len(self._shapes) >= _KEPT_SHAPES:
                self._shapes.clear()
            self._shapes[topology] = shape_numbers(topology)
        return self._shapes[topology]

    def _forget_steps(self) -> None:
        """Buffers moved."""
        self._buffers = None
        self._steps.clear()
        self._graphs.forget(lambda bucket: True)

    def _forget_trees(self) -> None:
        """Another reader works in them, or none."""
        self._steps = {bucket: step for bucket, step in self._steps.items() if bucket.nodes == 1}
        self._graphs.forget(lambda bucket: bucket.nodes > 1)

    def _runs_eagerly(self, reason: str) -> None:
        self._capabilities = replace(self._capabilities, eager=reason)


def _nobody() -> None:
    return None


def shape_numbers(topology: Topology) -> IntArray:
    """[3, n] int64: parents, depths, and ancestors (the node itself included) as bits, lowest first.

    >>> shape_numbers(Topology.from_parents([-1, 0, 0, 1]))[2].tolist()
    [1, 3, 5, 11]
    """
    packed = np.packbits(topology.ancestors, axis=1, bitorder="little")
    padded = np.zeros((topology.num_nodes, 8), np.uint8)
    padded[:, : packed.shape[1]] = packed
    return np.stack([topology.parents, topology.depths, padded.view("<i8")[:, 0]])
