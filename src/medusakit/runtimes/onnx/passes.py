"""One forward pass: its inputs laid out, bound to the graph, run.

Binding a hundred KV tensors costs a few hundred microseconds, so the binding of a shape is kept; a step then only
writes some small arrays and the biases in place.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from medusakit.errors import RuntimeFailure
from medusakit.models.spec import ModelSpec
from medusakit.runtimes.onnx.bias import write_bias
from medusakit.runtimes.onnx.cells import node_cells
from medusakit.runtimes.onnx.integers import activation_levels
from medusakit.runtimes.onnx.kv import SLICE, KvCache
from medusakit.runtimes.onnx.rotary import rotary_tables
from medusakit.runtimes.rows import Segment as RowSegment
from medusakit.tree.topology import FloatArray, IntArray

_MAX_BINDINGS = 64


class Segment(RowSegment):
    """And where its keys and values go."""

    @cached_property
    def cells(self) -> IntArray:
        """[n], where the nodes' keys and values lie."""
        return node_cells(self.length, self.depths)

    @cached_property
    def end(self) -> int:
        """The first cell after them."""
        return int(self.cells.max()) + 1


class Results(Enum):
    """What is wanted of a pass: everything, the last node, or all hidden states and the last logits."""

    NODES = "nodes"
    LAST = "last"
    HIDDEN = "hidden"


@dataclass(frozen=True, slots=True)
class PassShape:
    """The slots that the batch covers, nodes of each (0: the row is idle), and what is wanted."""

    first_slot: int
    nodes: tuple[int, ...]
    results: Results

    @classmethod
    def of(cls, segments: Sequence[Segment], results: Results) -> PassShape:
        first = min(segment.slot for segment in segments)
        nodes = [0] * (max(segment.slot for segment in segments) - first + 1)
        for segment in segments:
            nodes[segment.slot - first] = segment.num_nodes
        return cls(first, tuple(nodes), results)

    @property
    def width(self) -> int:
        return max(self.nodes)

    def hidden_rows(self) -> IntArray:
        """Nodes whose hidden states are wanted, as indices into the padded batch."""
        rows = [row * self.width + np.arange(count) for row, count in enumerate(self.nodes)]
        if self.results is Results.LAST:
            rows = [nodes[-1:] for nodes in rows]
        return np.concatenate(rows)

    def logit_rows(self) -> IntArray:
        """Which of those hidden states the LM head reads."""
        count = len(self.hidden_rows())
        return np.array([count - 1]) if self.results is Results.HIDDEN else np.arange(count)


class _Bound:
    """The arrays of one shape, bound once."""

    def __init__(self, binding: Any, shape: PassShape, kv: KvCache) -> None:
        rows, nodes = len(shape.nodes), shape.width
        self.binding, self.shape = binding, shape
        self.ids = np.zeros(rows * nodes, np.int64)
        self.position_ids = np.zeros((rows, nodes), np.int64)
        self.key_cells = _places(rows, nodes, *kv.keys.shape[2:4])[:, :, :, 0]
        self.value_cells = _places(rows, nodes, *kv.values.shape[2:4])
        self.hidden_rows, self.logit_rows = shape.hidden_rows(), shape.logit_rows()
        for name in ("ids", "position_ids", "key_cells", "value_cells", "hidden_rows", "logit_rows"):
            bind_input(binding, name, getattr(self, name))


class PassRunner:
    """Owns the memory of a pass's inputs and outputs and the KV memory's bindings."""

    def __init__(self, session: Any, spec: ModelSpec, kv: KvCache, max_context: int) -> None:
        self._session, self._spec, self._kv, self._max_context = session, spec, kv, max_context
        self._bound: dict[PassShape, _Bound] = {}
        self._tables: dict[str, NDArray[Any]] = {}
        self._hidden = np.empty((0, spec.hidden_size), np.float32)
        self._logits = np.empty((0, spec.vocab_size), np.float32)
        self._biases = {window: np.empty(0, np.float32) for window in sorted(set(spec.windows))}

    def kv_moved(self) -> None:
        """The KV memory has another address and capacity: bindings are stale, tables too short."""
        self._bound.clear()
        cells = self._kv.capacity
        self._tables = {**rotary_tables(self._spec, cells, self._max_context)}
        self._tables["ones"] = np.ones((cells, SLICE), np.float32)
        asked = {found.name for found in self._session.get_inputs()}
        self._tables.update((name, value) for name, value in activation_levels().items() if name in asked)

    def run(self, segments: Sequence[Segment], free: Sequence[int], results: Results) -> tuple[FloatArray, FloatArray]:
        """(hidden [h, d], logits [l, V]) of the wanted nodes, rows in slot order; views that the next run overwrites.

        free: the first unused cell of every slot, for rows inside the range that this pass leaves alone.
        """
        bound = self._bound_for(PassShape.of(segments, results))
        self._fill(bound, segments, free)
        try:
            self._session.run_with_iobinding(bound.binding)
        except Exception as error:
            raise RuntimeFailure(
                f"the forward pass of {bound.shape.nodes} nodes failed: {error}",
                hint="a smaller --max-context or --budget if memory is short; medusa doctor   tells what there is",
            ) from error
        return self._hidden[: len(bound.hidden_rows)], self._logits[: len(bound.logit_rows)]

    def _fill(self, bound: _Bound, segments: Sequence[Segment], free: Sequence[int]) -> None:
        first, rows, width = bound.shape.first_slot, len(bound.shape.nodes), bound.shape.width
        cells = np.empty((rows, width), np.int64)
        if rows > len(segments):  # idle rows compute something that nobody reads, and write it where nothing is
            cells[:] = np.array(free[first : first + rows])[:, None] + np.arange(width)
        for segment in segments:
            row, n = segment.slot - first, segment.num_nodes
            bound.ids[row * width : row * width + n] = segment.ids
            bound.position_ids[row, :n] = segment.depths + segment.length
            cells[row, :n] = segment.cells
            cells[row, n:] = np.arange(segment.end, segment.end + width - n)
            for window in self._biases:
                bias = self._bias(window, rows, width)[row, :n]
                write_bias(bias, segment.length, segment.cells, segment.ancestors, segment.depths, window)
        bound.key_cells[..., -1] = cells[:, :, None]
        bound.value_cells[..., -1] = cells[:, :, None, None]

    def _bias(self, window: int, rows: int, nodes: int) -> FloatArray:
        """[rows, nodes, cells], the front of the memory that all shapes share."""
        shape = rows, nodes, self._kv.capacity
        return self._biases[window][: math.prod(shape)].reshape(shape)

    def _bound_for(self, shape: PassShape) -> _Bound:
        found = self._bound.get(shape)
        if found is None:
            self._make_room(shape)
            if len(self._bound) >= _MAX_BINDINGS:
                del self._bound[next(iter(self._bound))]
            found = self._bound[shape] = self._bind(shape)
        return found

    def _make_room(self, shape: PassShape) -> None:
        """Outputs and biases of every shape share their memory; when it moves, all bindings are stale."""
        hidden, logits = len(shape.hidden_rows()), len(shape.logit_rows())
        cells = len(shape.nodes) * shape.width * self._kv.capacity
        if hidden > len(self._hidden) or logits > len(self._logits):
            self._bound.clear()
            self._hidden = np.empty((max(hidden, len(self._hidden)), self._spec.hidden_size), np.float32)
            self._logits = np.empty((max(logits, len(self._logits)), self._spec.vocab_size), np.float32)
        if any(cells > len(bias) for bias in self._biases.values()):
            self._bound.clear()
            self._biases = {window: np.zeros(cells, np.float32) for window in self._biases}

    def _bind(self, shape: PassShape) -> _Bound:
        binding = self._session.io_binding()
        for name, table in self._tables.items():
            bind_input(binding, name, table)
        for window in self._biases:
            bind_input(binding, f"bias.{window}", self._bias(window, len(shape.nodes), shape.width))
        slots = slice(shape.first_slot, shape.first_slot + len(shape.nodes))
        for kind, memory in (("keys", self._kv.keys), ("values", self._kv.values)):
            for layer, cache in enumerate(memory):
                bind_input(binding, f"past.{kind}.{layer}", cache[slots])
                bind_output(binding, f"present.{kind}.{layer}", cache[slots])
        bound = _Bound(binding, shape, self._kv)
        bind_output(binding, "hidden", self._hidden[: len(bound.hidden_rows)])
        bind_output(binding, "logits", self._logits[: len(bound.logit_rows)])
        return bound


def _places(rows: int, nodes: int, kv_heads: int, slices: int) -> IntArray:
    """[rows, nodes, kv_heads, slices, 4]: row, head, slice, and a cell that each pass fills in."""
    grid = np.zeros((rows, nodes, kv_heads, slices, 4), np.int64)
    grid[..., 0] = np.arange(rows)[:, None, None, None]
    grid[..., 1] = np.arange(kv_heads)[:, None]
    grid[..., 2] = np.arange(slices)
    return grid


def bind_input(binding: Any, name: str, array: NDArray[Any]) -> None:
    """Bind contiguous memory by address; the caller keeps it alive."""
    binding.bind_input(name, "cpu", 0, array.dtype.type, array.shape, array.ctypes.data)


def bind_output(binding: Any, name: str, array: NDArray[Any]) -> None:
    binding.bind_output(name, "cpu", 0, array.dtype.type, array.shape, array.ctypes.data)
