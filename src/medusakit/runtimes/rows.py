"""What the runtimes share: which rows are active, what a pass adds to one, and the checks of what is asked of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Generic, TypeVar

import numpy as np

from medusakit.errors import ContextLengthError, RuntimeFailure
from medusakit.models.spec import ModelSpec
from medusakit.runtimes.base import Capabilities, RowMemory
from medusakit.tree.topology import BoolArray, IntArray, Topology


@dataclass(frozen=True)
class Segment:
    """What one row adds: `ids` [n] after `length` positions, a tree or (topology None) a chain."""

    slot: int
    length: int
    ids: IntArray
    topology: Topology | None = None

    @property
    def num_nodes(self) -> int:
        return len(self.ids)

    @cached_property
    def depths(self) -> IntArray:
        return np.arange(self.num_nodes) if self.topology is None else self.topology.depths

    @property
    def ancestors(self) -> BoolArray:
        return np.tri(self.num_nodes, dtype=np.bool_) if self.topology is None else self.topology.ancestors


S = TypeVar("S", bound=Segment)


class RowTable:
    """Row handles and their slots: 0 .. max_rows - 1, the lowest free one first."""

    def __init__(self, spec: ModelSpec, capabilities: Capabilities) -> None:
        self._spec, self._capabilities = spec, capabilities
        self._slots: dict[int, int] = {}
        self._next_handle = 0

    @property
    def spec(self) -> ModelSpec:
        return self._spec

    @property
    def capabilities(self) -> Capabilities:
        return self._capabilities

    @property
    def rows(self) -> tuple[int, ...]:
        return tuple(self._slots)

    def _take_slot(self) -> int:
        """A new handle. Raises RuntimeFailure where all rows are in use."""
        free = set(range(self._capabilities.max_rows)) - set(self._slots.values())
        if not free:
            raise RuntimeFailure(
                f"all {self._capabilities.max_rows} rows are in use",
                hint="close a stream, or load with a larger max_rows",
            )
        row, self._next_handle = self._next_handle, self._next_handle + 1
        self._slots[row] = min(free)
        return row

    def _slot(self, row: int) -> int:
        if row not in self._slots:
            raise RuntimeFailure(f"row {row} is not active; active rows: {sorted(self._slots)}")
        return self._slots[row]

    def _checked(self, ids: Sequence[int] | IntArray) -> IntArray:
        """[n], at least one, all of the vocabulary."""
        tokens = np.asarray(ids, np.int64)
        listed = tokens.tolist()  # Python's min and max: a NumPy call costs more than a tree's worth of them
        if not listed:
            raise RuntimeFailure("nothing to run: the prompt has no tokens", hint="a prompt of at least one token")
        if not (min(listed) >= 0 and max(listed) < self._spec.vocab_size):
            raise RuntimeFailure(
                f"token ids run from 0 to {self._spec.vocab_size - 1}; got {min(listed)} to {max(listed)}",
                hint="the ids that llm.encode(text) gives",
            )
        return tokens

    def _check_context(self, positions: int) -> None:
        limit = self._capabilities.max_context
        if positions > limit:
            raise ContextLengthError(
                f"{positions} positions are needed, but the context holds {limit}",
                hint=f"a prompt and answer of at most {limit} tokens together",
            )


class KvRows(RowTable, Generic[S]):
    """Rows with positions in a KV memory of the runtime's own, and the last pass of each until it is committed."""

    def __init__(self, spec: ModelSpec, capabilities: Capabilities) -> None:
        super().__init__(spec, capabilities)
        self._lengths: dict[int, int] = {}
        self._pending: dict[int, S] = {}

    def length(self, row: int) -> int:
        self._slot(row)
        return self._lengths[row]

    def truncate(self, row: int, length: int) -> None:
        held = self.length(row)
        if not 0 <= length <= held:
            raise RuntimeFailure(f"row {row} has {held} positions, so it cannot be cut to {length}")
        self._lengths[row] = length
        self._pending.pop(row, None)

    def _take_row(self) -> int:
        row = self._take_slot()
        self._lengths[row] = 0
        return row

    def _forget_row(self, row: int) -> None:
        del self._slots[row], self._lengths[row]
        self._pending.pop(row, None)

    def _committed(self, row: int, nodes: Sequence[int]) -> S:
        """What the row ran, with these nodes of it kept. Raises RuntimeFailure unless they are a path from its root."""
        self._slot(row)
        segment = self._pending.pop(row, None)
        if segment is None or segment.topology is None:
            raise RuntimeFailure(f"row {row} has no forward pass to commit")
        kept = list(nodes)
        if kept and not (0 <= kept[-1] < segment.num_nodes and kept == segment.topology.path(kept[-1])):
            raise RuntimeFailure(f"nodes {kept} are not a path from the root of a tree of {segment.num_nodes} nodes")
        self._lengths[row] += len(kept)
        return segment

    def _check_empty(self, row: int, memory: RowMemory, length: int) -> None:
        if self.length(row) or not 0 <= length <= memory.length:
            raise RuntimeFailure(
                f"{length} of {memory.length} positions cannot begin a row that holds {self._lengths[row]}"
            )


def check_distinct(rows: Sequence[int]) -> None:
    """Raises RuntimeFailure unless a pass has at least one row, and each once."""
    if not rows or len(set(rows)) != len(rows):
        raise RuntimeFailure(f"forward takes each row once, got rows {list(rows)}")
