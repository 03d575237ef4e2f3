"""The seam `Runtime`: who owns weights and KV cache. Knows nothing of drafting or acceptance.

A row is one sequence. Its KV holds `length(row)` positions; the root of the next tree is decided but not yet in the KV,
so a step is `forward([(row, tree)])`, then `commit(row, kept_nodes)` with the root first among the kept nodes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from medusakit.models.spec import ModelSpec
from medusakit.tree.topology import FloatArray, Tree


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a runtime can do on this model; the engine falls back where one is False.

    weights      stored weight format: f32, int8, int4 (torch: its dtype)
    exact        "bitwise-ties" (fp32, and formats whose kernels keep a node's bits in any tree) or "numerical-ties"
    max_rows     rows that may be active at once
    max_context  positions a row may hold, root and drafted nodes included
    requantised  tensors whose stored values were rounded again: what runs is not quite the file's model
    trees        a pass may run a tree; False: chains only (or, with `chains` False as well, one token at a time)
    limit        why, for people
    backend      what computes it
    device       where, for people: "cpu", or a device's name
    eager        why passes on a device are not replayed graphs, "" where they are and on the CPU
    """

    weights: str
    exact: str
    max_rows: int
    max_context: int
    trees: bool = True
    requantised: int = 0
    chains: bool = True
    limit: str = ""
    backend: str = "onnx"
    device: str = "cpu"
    eager: str = ""


@dataclass(frozen=True, slots=True)
class RowMemory:
    """The KV of a row's first `length` positions, copied out: no row of the runtime is held by it. What the arrays
    hold is the runtime's affair; only the runtime that saved it can restore it."""

    length: int
    arrays: tuple[NDArray[Any], ...]

    @property
    def num_bytes(self) -> int:
        return sum(array.nbytes for array in self.arrays)


class Scores(Protocol):
    """What one row's forward pass says about its n nodes. Lazy: nothing is copied or reduced before it is asked for.

    Valid until the runtime's next `forward` or `prefill`; whoever keeps an array copies it.
    """

    @property
    def num_nodes(self) -> int: ...

    def argmax(self, node: int) -> int:
        """Highest-scoring token id after `node`, lowest id on ties."""
        ...

    def logits(self, node: int) -> FloatArray:
        """[V] float32, raw scores of the token after `node`. Read-only: processors copy."""
        ...

    def hidden(self, node: int) -> FloatArray:
        """[d] float32, hidden state after the final norm at `node` (what the LM head reads)."""
        ...


@runtime_checkable
class Ranked(Protocol):
    """Scores that lie where reading a node's is dear, and which can be ranked there."""

    def best(self, count: int) -> tuple[NDArray[np.int64], FloatArray]:
        """[n, count] ids of every node's highest scores, best first (ties in any order), and these scores."""
        ...


@runtime_checkable
class OnDevice(Protocol):
    """A runtime that lets others work in its steps, on its device. What they may do there is the runtime's affair."""

    def attach(self, reader: Any) -> bool:
        """Let it work in every step from now on; False where another does."""
        ...

    def told(self, row: int) -> Any:
        """What it said of the row in the last step, None if nothing."""
        ...


@runtime_checkable
class Runtime(Protocol):
    """See the module's text. All methods raise RuntimeFailure (or ContextLengthError) with numbers in the message."""

    @property
    def spec(self) -> ModelSpec: ...

    @property
    def capabilities(self) -> Capabilities: ...

    @property
    def rows(self) -> tuple[int, ...]:
        """Active rows, by handle."""
        ...

    def add_row(self) -> int:
        """A new empty row; the handle stays valid until `drop_row`."""
        ...

    def drop_row(self, row: int) -> None: ...

    def length(self, row: int) -> int:
        """Positions in the row's KV."""
        ...

    def prefill(self, row: int, ids: Sequence[int]) -> Scores:
        """Append `ids` to the row; scores of the last position only (node 0). Long prompts run in chunks inside."""
        ...

    def forward(self, trees: Sequence[tuple[int, Tree]]) -> Sequence[Scores]:
        """One pass over all trees (ragged sizes allowed). The KV of the nodes is provisional until `commit`."""
        ...

    def commit(self, row: int, nodes: Sequence[int]) -> None:
        """Keep the KV of these nodes of the last tree (a path from the root, in order); the rest is forgotten."""
        ...

    def truncate(self, row: int, length: int) -> None:
        """Forget positions from `length` on."""
        ...

    def save(self, row: int) -> RowMemory:
        """A copy of the row's KV, for rows of later texts that begin the same way."""
        ...

    def restore(self, row: int, memory: RowMemory, length: int) -> None:
        """Let an empty row begin with the first `length` positions of `memory`, which stays as it is."""
        ...

    def fill(self, row: int, length: int) -> None:
        """Let an empty row hold `length` positions of no meaning: for timing a pass without the time of a prompt."""
        ...

    def hidden_states(self, row: int, ids: Sequence[int]) -> NDArray[np.float32]:
        """Append `ids` to the row and return [len(ids), d] hidden states after the final norm (training, audits)."""
        ...

    def close(self) -> None: ...
