"""The CPU runtime: `load_onnx` opens a model, `OnnxRuntime` runs trees over its rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from medusakit.errors import UsageError
from medusakit.models.spec import ModelSpec, WeightSource
from medusakit.runtimes.base import Capabilities, RowMemory
from medusakit.runtimes.onnx.cache import cached_graph
from medusakit.runtimes.onnx.cells import cell_of, node_cells
from medusakit.runtimes.onnx.exactness import bits_are_kept, remembered
from medusakit.runtimes.onnx.formats import WEIGHTS
from medusakit.runtimes.onnx.heads import HeadLayout
from medusakit.runtimes.onnx.hugepages import settle, with_large_pages
from medusakit.runtimes.onnx.kv import KvCache
from medusakit.runtimes.onnx.passes import PassRunner, Results, Segment
from medusakit.runtimes.onnx.scores import OnnxScores
from medusakit.runtimes.onnx.session import default_threads, make_session
from medusakit.runtimes.rows import KvRows, check_distinct
from medusakit.tree.topology import FloatArray, Tree

_CHUNK = 256  # prompt positions a pass: attention scores of a chunk stay in some tens of megabytes


class OnnxRuntime(KvRows[Segment]):
    """A `Runtime` on ONNX Runtime's CPU kernels. Row handles map to slots 0 .. active - 1 of the KV cache.

    requantised: names of the tensors whose stored values were rounded again to fit the weight format.
    """

    def __init__(
        self, session: Any, spec: ModelSpec, capabilities: Capabilities, *, requantised: Sequence[str] = ()
    ) -> None:
        super().__init__(spec, capabilities)
        self.requantised = tuple(requantised)
        self._kv = KvCache(spec.num_layers, spec.num_kv_heads, HeadLayout.of(spec).size)
        self._passes = PassRunner(session, spec, self._kv, capabilities.max_context)

    def add_row(self) -> int:
        row = self._take_row()
        self._kv.wipe(self._slots[row])
        return row

    def drop_row(self, row: int) -> None:
        """The last slot's row moves into the hole, so that active rows stay a prefix of the batch. Memory that
        only it needed goes with it: attention reads all of it, so short texts would pay for a long one before."""
        hole = self._slot(row)
        last = len(self._slots) - 1
        if hole != last:
            moved = next(handle for handle, slot in self._slots.items() if slot == last)
            self._kv.copy_slot(last, hole, self._free(moved))
            self._slots[moved] = hole
        self._forget_row(row)
        if not self._slots:
            self._kv.clear()
            self._passes.kv_moved()
        elif self._kv.shrink(self._all_free()):
            self._passes.kv_moved()

    def prefill(self, row: int, ids: Sequence[int]) -> OnnxScores:
        hidden, logits = self._append(row, ids, Results.LAST)[-1]
        return OnnxScores(logits, hidden)

    def hidden_states(self, row: int, ids: Sequence[int]) -> FloatArray:
        return np.concatenate([hidden for hidden, _ in self._append(row, ids, Results.HIDDEN)])

    def forward(self, trees: Sequence[tuple[int, Tree]]) -> list[OnnxScores]:
        check_distinct([row for row, _ in trees])
        segments = [self._segment(row, tree) for row, tree in trees]
        self._reserve(segments)
        hidden, logits = self._passes.run(segments, self._all_free(), Results.NODES)
        self._pending.update((row, segment) for (row, _), segment in zip(trees, segments, strict=True))
        return _by_segment(segments, hidden, logits)

    def commit(self, row: int, nodes: Sequence[int]) -> None:
        segment, kept = self._committed(row, nodes), list(nodes)
        if kept != list(range(len(kept))):  # otherwise they lie where they belong
            self._kv.move(self._slots[row], segment.cells[kept], node_cells(segment.length, np.arange(len(kept))))

    def fill(self, row: int, length: int) -> None:
        self._check_context(length)
        settle()
        slot, held = self._slot(row), cell_of(length)
        self._reserve_cells(self._all_free(), held)
        self._kv.fill(slot, held)
        self._lengths[row] = length

    def save(self, row: int) -> RowMemory:
        held = cell_of(self.length(row))
        return RowMemory(self.length(row), self._kv.save(self._slot(row), held))

    def restore(self, row: int, memory: RowMemory, length: int) -> None:
        self._check_empty(row, memory, length)
        slot, free, held = self._slots[row], self._all_free(), cell_of(length)
        self._reserve_cells([held if at == slot else cell for at, cell in enumerate(free)], held)
        self._kv.restore(slot, memory.arrays, held)
        self._lengths[row] = length

    def close(self) -> None:
        """Give back the memory; the runtime is of no use afterwards."""
        del self._passes, self._kv
        self._slots.clear()

    def _append(self, row: int, ids: Sequence[int], results: Results) -> list[tuple[FloatArray, FloatArray]]:
        """Run `ids` in chunks; per chunk (hidden states, of all positions or of the last, and logits of the last)."""
        slot, tokens = self._slot(row), self._checked(ids)
        self._check_context(self._lengths[row] + len(tokens))
        self._pending.pop(row, None)
        chunks = []
        for start in range(0, len(ids), _CHUNK):
            segment = Segment(slot, self._lengths[row], tokens[start : start + _CHUNK])
            self._reserve([segment])
            hidden, logits = self._passes.run([segment], self._all_free(), results)
            self._lengths[row] += segment.num_nodes
            chunks.append((hidden.copy() if results is Results.HIDDEN else hidden, logits))
        return chunks

    def _segment(self, row: int, tree: Tree) -> Segment:
        slot = self._slot(row)
        self._check_context(self._lengths[row] + tree.topology.max_depth + 1)
        return Segment(slot, self._lengths[row], self._checked(tree.tokens), tree.topology)

    def _reserve(self, segments: Sequence[Segment]) -> None:
        """Room for the padded pass in every row; KV memory grows when the longest row needs it."""
        width = max(segment.num_nodes for segment in segments)
        taken = {segment.slot: segment.end + width - segment.num_nodes for segment in segments}
        free = self._all_free()
        self._reserve_cells([taken.get(slot, cell + width) for slot, cell in enumerate(free)])

    def _reserve_cells(self, ends: Sequence[int], cells: int = 0) -> None:
        """Room up to these ends (exclusive) of the active slots, and for `cells` at least."""
        needed = self._capabilities.max_rows, max(cells, *ends)
        if not self._kv.has_room(*needed):
            self._kv.grow(*needed, self._all_free())
            self._passes.kv_moved()
        self._kv.will_write(ends)

    def _all_free(self) -> list[int]:
        """The first cell of every slot with nothing in it."""
        return [self._free(row) for row in sorted(self._slots, key=self._slots.__getitem__)]

    def _free(self, row: int) -> int:
        pending = self._pending.get(row)
        return pending.end if pending else cell_of(self.length(row))


def _by_segment(segments: Sequence[Segment], hidden: FloatArray, logits: FloatArray) -> list[OnnxScores]:
    """The pass gives rows in slot order; scores go back in the order of the segments."""
    scores, start = {}, 0
    for segment in sorted(segments, key=lambda segment: segment.slot):
        end = start + segment.num_nodes
        scores[segment.slot] = OnnxScores(logits[start:end], hidden[start:end])
        start = end
    return [scores[segment.slot] for segment in segments]


def load_onnx(
    source: WeightSource,
    *,
    weights: str = "auto",
    threads: int | None = None,
    max_rows: int = 1,
    max_context: int | None = None,
    cache_dir: Path | None = None,
) -> OnnxRuntime:
    """Open a model on the CPU. The graph is built on first use and kept in `cache_dir`.

    weights      f32, int8, int4, or auto: what the file stores
    threads      cores to use; None: all that the process may use
    max_context  positions a row may hold; None: the model's own limit
    """

    chosen = source.default_weights if weights == "auto" else weights
    if chosen not in WEIGHTS:
        raise UsageError(
            f"weights {weights!r} are not a format of the CPU runtime", hint=f"one of: auto, {', '.join(WEIGHTS)}"
        )
    limit = _context_limit(source.spec, max_context)  # before the graph, which may take long to build
    graph = cached_graph(source, chosen, cache_dir)
    session = with_large_pages(lambda: make_session(graph.path, threads=threads))
    capabilities = Capabilities(chosen, "numerical-ties", max_rows, limit, requantised=len(graph.requantised))
    runtime = OnnxRuntime(session, source.spec, capabilities, requantised=graph.requantised)
    if chosen == "f32" or remembered(graph.path.parent, threads or default_threads(), lambda: bits_are_kept(runtime)):
        exact = replace(capabilities, exact="bitwise-ties")
        runtime = OnnxRuntime(session, source.spec, exact, requantised=graph.requantised)
    return runtime


def _context_limit(spec: ModelSpec, asked: int | None) -> int:
    """What a row may hold: the model's own limit, or less where asked.

    longrope rotates every position by its long factors once the limit passes the original context, so by default it
    does not, and short prompts run as they were trained. Ask for more to get more.
    """
    if asked is not None and not 0 < asked <= spec.context_length:
        raise UsageError(
            f"max_context {asked} is outside 1 to {spec.context_length}, the model's own limit",
            hint=f"--max-context {spec.context_length}",
        )
    default = spec.rope.original_context if spec.rope.scaling == "longrope" else spec.context_length
    return asked or default
