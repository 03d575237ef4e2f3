"""One forward pass: its inputs laid out, bound to the graph, run.

Binding sixty KV tensors costs a few hundred microseconds, so the binding of a shape is kept; a step then writes some
small arrays in place and rebinds the biases, whose width follows the context.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from medusakit.errors import RuntimeFailure
from medusakit.models.spec import ModelSpec
from medusakit.runtimes.onnx.bias import write_bias, write_chain_bias
from medusakit.runtimes.onnx.kv import KvCache
from medusakit.runtimes.onnx.rotary import rotary_tables
from medusakit.tree.topology import FloatArray, IntArray, Topology

_MAX_BINDINGS = 64


@dataclass(frozen=True, slots=True)
class Segment:
    """What one row adds: `ids` [n] after `length` positions, a tree or (topology None) a chain."""

    slot: int
    length: int
    ids: IntArray
    topology: Topology | None

    @property
    def num_nodes(self) -> int:
        return len(self.ids)

    @property
    def positions(self) -> NDArray[np.int64]:
        if self.topology is None:
            return np.arange(self.length, self.length + self.num_nodes)
        return self.topology.depths + self.length


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

    def __init__(self, binding: Any, shape: PassShape) -> None:
        rows, nodes = len(shape.nodes), shape.width
        self.binding, self.shape = binding, shape
        self.ids = np.zeros(rows * nodes, np.int64)
        self.position_ids = np.zeros((rows, nodes), np.int64)
        self.seqlens_k = np.zeros(rows, np.int32)
        self.query_seqlens = np.array(shape.nodes, np.int32)
        self.total = np.zeros((), np.int32)
        self.hidden_rows, self.logit_rows = shape.hidden_rows(), shape.logit_rows()
        for name in ("ids", "position_ids", "seqlens_k", "query_seqlens", "total", "hidden_rows", "logit_rows"):
            bind_input(binding, name, getattr(self, name))


class PassRunner:
    """Owns the memory of a pass's inputs and outputs and the KV buffers' bindings."""

    def __init__(self, session: Any, spec: ModelSpec, kv: KvCache, max_context: int) -> None:
        self._session, self._spec, self._kv, self._max_context = session, spec, kv, max_context
        self._windows = sorted(set(spec.windows))
        self._bound: dict[PassShape, _Bound] = {}
        self._tables: dict[str, FloatArray] = {}
        self._hidden = np.empty((0, spec.hidden_size), np.float32)
        self._logits = np.empty((0, spec.vocab_size), np.float32)
        self._zeros = np.zeros(0, np.float32)
        self._biases = {window: np.empty(0, np.float32) for window in self._windows}

    def kv_moved(self) -> None:
        """The KV buffers have new addresses or a new capacity: bindings are stale, rotary tables too short."""
        self._bound.clear()
        self._tables = rotary_tables(self._spec, self._kv.capacity, self._max_context)

    def run(
        self, segments: Sequence[Segment], lengths: Sequence[int], results: Results
    ) -> tuple[FloatArray, FloatArray]:
        """(hidden [h, d], logits [l, V]) of the wanted nodes, rows in slot order; views that the next run overwrites.

        lengths: positions of every slot, for rows inside the range that this pass leaves alone.
        """
        bound = self._bound_for(PassShape.of(segments, results))
        self._fill(bound, segments, lengths)
        self._bind_biases(bound, segments)
        try:
            self._session.run_with_iobinding(bound.binding)
        except Exception as error:
            raise RuntimeFailure(f"the forward pass of {bound.shape.nodes} nodes failed: {error}") from error
        return self._hidden[: len(bound.hidden_rows)], self._logits[: len(bound.logit_rows)]

    def _fill(self, bound: _Bound, segments: Sequence[Segment], lengths: Sequence[int]) -> None:
        first, rows, nodes = bound.shape.first_slot, len(bound.shape.nodes), bound.shape.width
        if rows > len(segments):  # idle rows keep their KV, and the kernel wants at least one position
            bound.seqlens_k[:] = [max(1, length) - 1 for length in lengths[first : first + rows]]
        for segment in segments:
            row, n = segment.slot - first, segment.num_nodes
            bound.ids[row * nodes : row * nodes + n] = segment.ids
            bound.position_ids[row, :n] = segment.positions
            bound.seqlens_k[row] = segment.length + n - 1
        bound.total[...] = max(max(bound.seqlens_k.tolist()) + 1, nodes)

    def _bind_biases(self, bound: _Bound, segments: Sequence[Segment]) -> None:
        first, rows, nodes = bound.shape.first_slot, len(bound.shape.nodes), bound.shape.width
        total = int(bound.total)
        chains = all(segment.topology is None or segment.num_nodes == 1 for segment in segments)
        for window in self._windows:
            if chains and (not window or total <= window):
                self._zeros = _at_least(self._zeros, nodes * total)
                bias = self._zeros[: nodes * total].reshape(1, 1, nodes, total)
            else:
                self._biases[window] = _at_least(self._biases[window], rows * nodes * total)
                bias = self._biases[window][: rows * nodes * total].reshape(rows, 1, nodes, total)
                for segment in segments:
                    _write(bias[segment.slot - first, 0], segment, window)
            bind_input(bound.binding, f"bias.{window}", bias)

    def _bound_for(self, shape: PassShape) -> _Bound:
        found = self._bound.get(shape)
        if found is None:
            self._make_room(len(shape.hidden_rows()), len(shape.logit_rows()))
            if len(self._bound) >= _MAX_BINDINGS:
                del self._bound[next(iter(self._bound))]
            found = self._bound[shape] = self._bind(shape)
        return found

    def _make_room(self, num_hidden: int, num_logits: int) -> None:
        """Outputs of every shape share their memory; when it moves, all bindings are stale."""
        if num_hidden > len(self._hidden) or num_logits > len(self._logits):
            self._bound.clear()
            self._hidden = np.empty((max(num_hidden, len(self._hidden)), self._spec.hidden_size), np.float32)
            self._logits = np.empty((max(num_logits, len(self._logits)), self._spec.vocab_size), np.float32)

    def _bind(self, shape: PassShape) -> _Bound:
        binding = self._session.io_binding()
        for name, table in self._tables.items():
            bind_input(binding, name, table)
        for j, cache in enumerate(self._kv.buffer):
            rows = cache[shape.first_slot : shape.first_slot + len(shape.nodes)]
            bind_input(binding, f"past.{j}", rows)
            bind_output(binding, f"present.{j}", rows)
        bound = _Bound(binding, shape)
        bind_output(binding, "hidden", self._hidden[: len(bound.hidden_rows)])
        bind_output(binding, "logits", self._logits[: len(bound.logit_rows)])
        return bound


def bind_input(binding: Any, name: str, array: NDArray[Any]) -> None:
    """Bind contiguous memory by address; the caller keeps it alive."""
    binding.bind_input(name, "cpu", 0, array.dtype.type, array.shape, array.ctypes.data)


def bind_output(binding: Any, name: str, array: NDArray[Any]) -> None:
    binding.bind_output(name, "cpu", 0, array.dtype.type, array.shape, array.ctypes.data)


def _write(out: FloatArray, segment: Segment, window: int) -> None:
    if segment.topology is None:
        write_chain_bias(out, segment.length, segment.num_nodes, window)
    else:
        write_bias(out, segment.length, segment.topology, window)


def _at_least(buffer: FloatArray, size: int) -> FloatArray:
    """A zeroed buffer of at least `size`, grown by half as much again."""
    return buffer if len(buffer) >= size else np.zeros(size + size // 2, np.float32)
