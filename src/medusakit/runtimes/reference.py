"""Runtime `reference`: a small NumPy transformer, the oracle of the tests; `random_reference` makes one from a seed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import DTypeLike

from medusakit.errors import ContextLengthError, RuntimeFailure
from medusakit.models.spec import ModelSpec, WeightSource
from medusakit.runtimes.base import Capabilities, RowMemory
from medusakit.runtimes.reference_math import Array, Decoder, KeysValues
from medusakit.runtimes.reference_source import random_source
from medusakit.tree.topology import BoolArray, FloatArray, IntArray, Tree


@dataclass(frozen=True, slots=True)
class ArrayScores:
    """`Scores` over arrays: rows [n, V] logits, states [n, d] hidden states."""

    rows: FloatArray
    states: FloatArray

    @property
    def num_nodes(self) -> int:
        return len(self.rows)

    def argmax(self, node: int) -> int:
        return int(self.rows[node].argmax())

    def logits(self, node: int) -> FloatArray:
        row: FloatArray = self.rows[node].view()
        row.setflags(write=False)
        return row

    def hidden(self, node: int) -> FloatArray:
        state: FloatArray = self.states[node]
        return state


@dataclass(slots=True)
class _Row:
    """KV per layer of committed positions; tree and new KV of the last forward pass until it is committed."""

    kv: list[KeysValues]
    length: int = 0
    tree: Tree | None = None
    new: list[KeysValues] = field(default_factory=list)


class ReferenceRuntime:
    """A `Runtime` on `Decoder`. Slow and plain; every row is computed alone, so batching cannot change anything.

    dtype  float64 (default) or float32; scores are float32 either way
    leak   (node, other): in every tree that has both, `node` also sees `other`. A planted fault of the tree mask, for
           tests of what must find it.
    """

    def __init__(
        self,
        source: WeightSource,
        *,
        dtype: DTypeLike = np.float64,
        max_rows: int = 8,
        max_context: int | None = None,
        leak: tuple[int, int] | None = None,
    ) -> None:
        limit = max_context or source.spec.context_length
        self._decoder = Decoder(source, dtype, limit)
        self._capabilities = Capabilities("f32", "bitwise-ties", max_rows, limit)
        self._leak = leak
        self._rows: dict[int, _Row] = {}
        self._next_row = 0

    @property
    def spec(self) -> ModelSpec:
        return self._decoder.spec

    @property
    def capabilities(self) -> Capabilities:
        return self._capabilities

    @property
    def rows(self) -> tuple[int, ...]:
        return tuple(self._rows)

    def add_row(self) -> int:
        if len(self._rows) >= self._capabilities.max_rows:
            raise RuntimeFailure(f"all {self._capabilities.max_rows} rows are in use")
        row, self._next_row = self._next_row, self._next_row + 1
        self._rows[row] = _Row(self._decoder.nothing())
        return row

    def drop_row(self, row: int) -> None:
        self._row(row)
        del self._rows[row]

    def length(self, row: int) -> int:
        return self._row(row).length

    def prefill(self, row: int, ids: Sequence[int]) -> ArrayScores:
        hidden = self._append(row, ids)[-1:]
        return self._scores(hidden)

    def hidden_states(self, row: int, ids: Sequence[int]) -> FloatArray:
        return self._append(row, ids).astype(np.float32)

    def forward(self, trees: Sequence[tuple[int, Tree]]) -> list[ArrayScores]:
        if len({row for row, _ in trees}) != len(trees):
            raise RuntimeFailure(f"forward takes each row once, got rows {[row for row, _ in trees]}")
        return [self._forward(self._row(row), tree) for row, tree in trees]

    def commit(self, row: int, nodes: Sequence[int]) -> None:
        state = self._row(row)
        if state.tree is None:
            raise RuntimeFailure(f"row {row} has no forward pass to commit")
        if list(nodes) != (state.tree.topology.path(nodes[-1]) if nodes else []):
            raise RuntimeFailure(f"nodes {list(nodes)} are not a path from the root of row {row}'s last tree")
        kept = list(nodes)
        self._extend(state, [(key[kept], value[kept]) for key, value in state.new], len(kept))

    def truncate(self, row: int, length: int) -> None:
        state = self._row(row)
        if not 0 <= length <= state.length:
            raise RuntimeFailure(f"row {row} has {state.length} positions, so it cannot be cut to {length}")
        state.kv = [(key[:length], value[:length]) for key, value in state.kv]
        state.length, state.tree, state.new = length, None, []

    def save(self, row: int) -> RowMemory:
        state = self._row(row)
        return RowMemory(state.length, tuple(part.copy() for pair in state.kv for part in pair))

    def restore(self, row: int, memory: RowMemory, length: int) -> None:
        state = self._row(row)
        if state.length or not 0 <= length <= memory.length:
            raise RuntimeFailure(f"{length} of {memory.length} positions cannot begin a row of {state.length}")
        parts = [part[:length].copy() for part in memory.arrays]
        self._extend(state, list(zip(parts[::2], parts[1::2], strict=True)), length)

    def fill(self, row: int, length: int) -> None:
        state = self._row(row)
        nothing = [
            (np.zeros((length, *key.shape[1:])), np.zeros((length, *value.shape[1:]))) for key, value in state.kv
        ]
        self._extend(state, nothing, length)

    def close(self) -> None:
        self._rows.clear()

    def _forward(self, state: _Row, tree: Tree) -> ArrayScores:
        topology = tree.topology
        sees = topology.ancestors
        if self._leak is not None and max(self._leak) < topology.num_nodes:
            sees = sees.copy()
            sees[self._leak] = True
        hidden, new = self._run(state, tree.tokens, topology.depths, sees)
        state.tree, state.new = tree, new
        return self._scores(hidden)

    def _append(self, row: int, ids: Sequence[int]) -> Array:
        state = self._row(row)
        if not len(ids):
            raise RuntimeFailure("nothing to run: the prompt has no tokens")
        chain = np.tri(len(ids), dtype=np.bool_)
        hidden, new = self._run(state, np.asarray(ids, dtype=np.int64), np.arange(len(ids)), chain)
        self._extend(state, new, len(ids))
        return hidden

    def _run(self, state: _Row, tokens: IntArray, depths: IntArray, sees: BoolArray) -> tuple[Array, list[KeysValues]]:
        needed = state.length + int(depths.max()) + 1
        if needed > self._capabilities.max_context:
            limit = self._capabilities.max_context
            raise ContextLengthError(f"{needed} positions are needed, but the context holds {limit}")
        if tokens.min() < 0 or tokens.max() >= self.spec.vocab_size:
            raise RuntimeFailure(f"token ids run from 0 to {self.spec.vocab_size - 1}; got {tokens.tolist()}")
        return self._decoder.run(state.kv, tokens, state.length + depths, sees)

    def _extend(self, state: _Row, new: Sequence[KeysValues], num_positions: int) -> None:
        state.kv = [
            (np.concatenate([old_key, key]), np.concatenate([old_value, value]))
            for (old_key, old_value), (key, value) in zip(state.kv, new, strict=True)
        ]
        state.length, state.tree, state.new = state.length + num_positions, None, []

    def _scores(self, hidden: Array) -> ArrayScores:
        return ArrayScores(self._decoder.logits(hidden).astype(np.float32), hidden.astype(np.float32))

    def _row(self, row: int) -> _Row:
        if row not in self._rows:
            raise RuntimeFailure(f"row {row} is not active; active rows: {sorted(self._rows)}")
        return self._rows[row]


def random_reference(
    seed: int,
    vocab_size: int,
    *,
    dtype: DTypeLike = np.float64,
    max_rows: int = 8,
    leak: tuple[int, int] | None = None,
    hidden_size: int = 16,
    num_layers: int = 2,
    context_length: int = 256,
    sharpness: float = 2.0,
) -> ReferenceRuntime:
    """A runtime over `random_source`: a toy language model whose every probability can be enumerated."""
    source = random_source(
        seed, vocab_size, hidden_size=hidden_size, num_layers=num_layers, context_length=context_length,
        sharpness=sharpness,
    )  # fmt: skip
    return ReferenceRuntime(source, dtype=dtype, max_rows=max_rows, leak=leak)
