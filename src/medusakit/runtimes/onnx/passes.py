"""One forward pass: its inputs laid out, bound to the graph, run.

Binding sixty KV tensors costs a few hundred microseconds, so the binding of a shape is kept; a step then writes some
small arrays in place and rebinds the biases, whose width follows the context.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from medusakit.errors import RuntimeFailure
from medusakit.models.spec import ModelSpec
from medusakit.runtimes.onnx.bias import write_bias, write_chain_bias
from medusakit.runtimes.onnx.kv import KvCache
from medusakit.runtimes.onnx.rotary import rotary_tables
from medusakit.tree.topology import FloatArray, Topology

_MAX_BINDINGS = 64


@dataclass(frozen=True, slots=True)
class Segment:
    """What one row adds: `embeds` [n, d] after `length` positions, a tree or (topology None) a chain."""

    slot: int
    length: int
    embeds: FloatArray
    topology: Topology | None

    @property
    def num_nodes(self) -> int:
        return len(self.embeds)

    @property
    def positions(self) -> NDArray[np.int64]:
        if self.topology is None:
            return np.arange(self.length, self.length + self.num_nodes)
        return self.topology.depths + self.length


@dataclass(frozen=True, slots=True)
class PassShape:
    """The slots that the batch covers, its padded width, and how many results are wanted."""

    first_slot: int
    num_rows: int
    num_nodes: int
    num_hidden: int
    num_logits: int


class _Bound:
    """The arrays of one shape, bound once."""

    def __init__(self, binding: Any, shape: PassShape, hidden_size: int) -> None:
        rows, nodes = shape.num_rows, shape.num_nodes
        self.binding = binding
        self.embeds = np.zeros((rows * nodes, hidden_size), np.float32)
        self.position_ids = np.zeros((rows, nodes), np.int64)
        self.seqlens_k = np.zeros(rows, np.int32)
        self.query_seqlens = np.zeros(rows, np.int32)
        self.total = np.zeros((), np.int32)
        self.hidden_rows = np.zeros(shape.num_hidden, np.int64)
        self.logit_rows = np.zeros(shape.num_logits, np.int64)
        for name in ("embeds", "position_ids", "seqlens_k", "query_seqlens", "total", "hidden_rows", "logit_rows"):
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
        self,
        segments: Sequence[Segment],
        lengths: Sequence[int],
        *,
        hidden: Sequence[NDArray[np.int64]],
        logits: NDArray[np.int64],
    ) -> tuple[FloatArray, FloatArray]:
        """(hidden [h, d], logits [l, V]), views that the next run overwrites.

        lengths  positions of every slot, for rows inside the range that this pass leaves alone
        hidden   per segment, the nodes whose hidden states are wanted, in order
        logits   indices into all those hidden states, whose scores are wanted
        """
        first = min(segment.slot for segment in segments)
        num_rows = max(segment.slot for segment in segments) - first + 1
        num_nodes = max(segment.num_nodes for segment in segments)
        num_hidden = sum(len(nodes) for nodes in hidden)
        bound = self._bound_for(PassShape(first, num_rows, num_nodes, num_hidden, len(logits)))
        self._fill(bound, first, segments, lengths)
        rows = [nodes + (segment.slot - first) * num_nodes for segment, nodes in zip(segments, hidden, strict=True)]
        np.concatenate(rows, out=bound.hidden_rows)
        bound.logit_rows[:] = logits
        self._bind_biases(bound, first, segments)
        try:
            self._session.run_with_iobinding(bound.binding)
        except Exception as error:
            raise RuntimeFailure(f"the forward pass of {num_rows} x {num_nodes} nodes failed: {error}") from error
        return self._hidden[:num_hidden], self._logits[: len(logits)]

    def _fill(self, bound: _Bound, first: int, segments: Sequence[Segment], lengths: Sequence[int]) -> None:
        rows, nodes = bound.position_ids.shape
        if rows > len(segments):  # idle rows keep their KV: no queries, at least one position
            bound.query_seqlens[:] = 0
            bound.seqlens_k[:] = [max(1, length) - 1 for length in lengths[first : first + rows]]
        for segment in segments:
            row, n = segment.slot - first, segment.num_nodes
            bound.embeds[row * nodes : row * nodes + n] = segment.embeds
            bound.position_ids[row, :n] = segment.positions
            bound.seqlens_k[row] = segment.length + n - 1
            bound.query_seqlens[row] = n
        bound.total[...] = max(int(bound.seqlens_k.max()) + 1, nodes)

    def _bind_biases(self, bound: _Bound, first: int, segments: Sequence[Segment]) -> None:
        rows, nodes = bound.position_ids.shape
        total = int(bound.total)
        open_chains = all(segment.topology is None or segment.num_nodes == 1 for segment in segments)
        for window in self._windows:
            if open_chains and (not window or total <= window):
                self._zeros = _at_least(self._zeros, nodes * total)
                bias = self._zeros[: nodes * total].reshape(1, 1, nodes, total)
            else:
                self._biases[window] = _at_least(self._biases[window], rows * nodes * total)
                bias = self._biases[window][: rows * nodes * total].reshape(rows, 1, nodes, total)
                for segment in segments:
                    _write(bias[segment.slot - first, 0], segment, window)
            bind_input(bound.binding, f"bias.{window}", bias)

    def _bound_for(self, shape: PassShape) -> _Bound:
        if shape.num_hidden > len(self._hidden) or shape.num_logits > len(self._logits):
            self._bound.clear()
            self._hidden = np.empty((max(shape.num_hidden, len(self._hidden)), self._spec.hidden_size), np.float32)
            self._logits = np.empty((max(shape.num_logits, len(self._logits)), self._spec.vocab_size), np.float32)
        if shape not in self._bound:
            if len(self._bound) >= _MAX_BINDINGS:
                del self._bound[next(iter(self._bound))]
            self._bound[shape] = self._bind(shape)
        return self._bound[shape]

    def _bind(self, shape: PassShape) -> _Bound:
        binding = self._session.io_binding()
        for name, table in self._tables.items():
            bind_input(binding, name, table)
        for j, cache in enumerate(self._kv.buffer):
            rows = cache[shape.first_slot : shape.first_slot + shape.num_rows]
            bind_input(binding, f"past.{j}", rows)
            bind_output(binding, f"present.{j}", rows)
        bind_output(binding, "hidden", self._hidden[: shape.num_hidden])
        bind_output(binding, "logits", self._logits[: shape.num_logits])
        return _Bound(binding, shape, self._spec.hidden_size)


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
