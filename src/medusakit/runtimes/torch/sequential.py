"""For models whose state cannot go back (recurrent and hybrid layers): one token at a time, through their own cache.

Plain decoding is the only thing that such a model does at its own speed. What the seam asks for beyond it (going back,
a pass that is not committed) is done by running the row's ids again, which is slow, and right.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from medusakit.errors import RuntimeFailure
from medusakit.models.spec import ModelSpec
from medusakit.runtimes.base import Capabilities, RowMemory
from medusakit.runtimes.rows import RowTable, check_distinct
from medusakit.runtimes.torch.model import CausalModel
from medusakit.runtimes.torch.scores import TorchScores, as_numpy
from medusakit.tree.topology import FloatArray, Tree


@dataclass(slots=True)
class _Row:
    """ids: what the row holds. cache: the model's, after `run` of them; one more where a pass waits for its commit."""

    ids: list[int] = field(default_factory=list)
    cache: Any = None
    run: int = 0
    pending: int | None = None


class SequentialRuntime(RowTable):
    """A `Runtime` without trees. See the module's text."""

    def __init__(self, model: CausalModel, spec: ModelSpec, capabilities: Capabilities) -> None:
        super().__init__(spec, capabilities)
        self._model = model
        self._held: dict[int, _Row] = {}

    def add_row(self) -> int:
        row = self._take_slot()
        self._held[row] = _Row()
        return row

    def drop_row(self, row: int) -> None:
        self._slot(row)
        del self._slots[row], self._held[row]

    def length(self, row: int) -> int:
        return len(self._row(row).ids)

    def prefill(self, row: int, ids: Sequence[int]) -> TorchScores:
        hidden, logits = self._append(row, ids)
        return TorchScores(logits[0, -1:], hidden[0, -1:])

    def hidden_states(self, row: int, ids: Sequence[int]) -> FloatArray:
        return as_numpy(self._append(row, ids)[0][0])

    def forward(self, trees: Sequence[tuple[int, Tree]]) -> list[TorchScores]:
        check_distinct([row for row, _ in trees])
        return [self._forward(self._row(row), tree) for row, tree in trees]

    def commit(self, row: int, nodes: Sequence[int]) -> None:
        state = self._row(row)
        if state.pending is None:
            raise RuntimeFailure(f"row {row} has no forward pass to commit")
        if list(nodes) not in ([], [0]):
            raise RuntimeFailure(f"nodes {list(nodes)} are not a path from the root of a tree of 1 node")
        state.ids += [state.pending] * len(nodes)
        state.pending = None

    def truncate(self, row: int, length: int) -> None:
        state = self._row(row)
        if not 0 <= length <= len(state.ids):
            raise RuntimeFailure(f"row {row} has {len(state.ids)} positions, so it cannot be cut to {length}")
        if length < len(state.ids):
            state.cache = None
        state.pending = None
        del state.ids[length:]

    def save(self, row: int) -> RowMemory:
        """The ids: a state of any position cannot be had from that of the last."""
        ids = self._row(row).ids
        return RowMemory(len(ids), (np.array(ids, np.int64),))

    def restore(self, row: int, memory: RowMemory, length: int) -> None:
        state = self._row(row)
        if state.ids or not 0 <= length <= memory.length:
            raise RuntimeFailure(f"{length} of {memory.length} positions cannot begin a row of {len(state.ids)}")
        state.ids, state.cache = memory.arrays[0][:length].tolist(), None

    def fill(self, row: int, length: int) -> None:
        self._check_context(length)
        state = self._row(row)
        state.ids, state.cache = [0] * length, None

    def close(self) -> None:
        """Leave the model as it was; the runtime is of no use afterwards."""
        self._model.close()
        self._held.clear()
        self._slots.clear()

    def _append(self, row: int, ids: Sequence[int]) -> tuple[Any, Any]:
        state, tokens = self._row(row), self._checked(ids)
        self._check_context(len(state.ids) + len(tokens))
        state.pending = None
        found = self._run(state, tokens.tolist())
        state.ids += tokens.tolist()
        return found

    def _forward(self, state: _Row, tree: Tree) -> TorchScores:
        if tree.num_nodes > 1:
            raise RuntimeFailure(
                f"a tree of {tree.num_nodes} nodes, but this model decodes plainly only: {self._capabilities.limit}",
                hint="--no-speculation",
            )
        self._check_context(len(state.ids) + 1)
        hidden, logits = self._run(state, self._checked(tree.tokens).tolist())
        state.pending = int(tree.tokens[0])
        return TorchScores(logits[0], hidden[0])

    def _run(self, state: _Row, new: list[int]) -> tuple[Any, Any]:
        """(hidden states of the new ids, logits of the last). A cache that holds something else begins anew; so does
        one that several ids would go into, which some models run as if nothing came before."""
        if state.run != len(state.ids) or len(new) > 1:
            state.cache = None
        if state.cache is None:
            state.run = 0
        ids = torch.tensor([[*state.ids[state.run :], *new]], device=self._model.device)
        # given, since some models count positions from a layer that does not know them
        positions = torch.arange(state.run, state.run + ids.shape[1], device=ids.device)[None]
        hidden, logits, output = self._model.run(ids, cache=state.cache, positions=positions, last_only=True)
        state.cache = self._model.cache_of(output)
        state.run = len(state.ids) + len(new)
        return hidden[:, -len(new) :], logits

    def _row(self, row: int) -> _Row:
        self._slot(row)
        return self._held[row]
