"""One level of a recurrent drafter's draft as an ONNX graph; which nodes are drafted on is decided between the levels.

What a level computes is the family's `Cell`; what is the same for all families is here. Of N nodes, all rows together:

    state_i [N, w_i], embedded [N, d] (rms(e(token))), level [1] int64, branching [1] int64
    -> next_i [N, w_i], ids [N, branching] int64 (places in the draft vocabulary), logprobs [N, branching]

A cell whose state does not begin as h_t has a second graph, which is run once a draft. What it makes of each row for
every level to read is `shared` [R, ...]; the N nodes of a level are N / R of each row, row by row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np

from medusakit.drafters.graph import DraftGraph
from medusakit.tree.topology import FloatArray

State = tuple[str, ...]
"""Names of the tensors [N, w_i] that a node carries on to its children."""


class Cell(Protocol):
    """One depth of a recurrent family, as ONNX nodes."""

    @property
    def widths(self) -> tuple[int, ...]:
        """w_i of each tensor of the state."""
        ...

    @property
    def has_start(self) -> bool:
        """Whether the state begins as something else than h_t alone."""
        ...

    @property
    def shared(self) -> Mapping[str, Sequence[int | str]]:
        """Tensors that the start makes for every level, with their shapes, which begin with "R"."""
        ...

    def start(self, g: DraftGraph, hidden: str, root: str) -> State:
        """The state [R, w_i] before the root is read; declares inputs of its own, and further outputs. hidden, root
        [R, d]."""
        ...

    def step(self, g: DraftGraph, state: State, embedded: str, level: str) -> tuple[State, str]:
        """Reads a token at every node: state [N, w_i] and rms(e(token)) [N, d] give the next state, and [N, d] what the
        LM head reads. level: [1] int64, 0 where the root is read."""
        ...


def build_start(cell: Cell, hidden_size: int, *, quantised: bool = True) -> bytes:
    """Serialised graph: hidden, root [R, d], and what the cell asks for -> state_i [R, w_i]."""
    g = DraftGraph(quantised=quantised)
    inputs = [g.input(name, np.float32, ["R", hidden_size]) for name in ("hidden", "root")]
    for part, (name, width) in enumerate(zip(cell.start(g, *inputs), cell.widths, strict=True)):
        g.output(g.node("Identity", [name], f"state_{part}"), np.float32, ["R", width])
    for name, shape in cell.shared.items():
        g.output(name, np.float32, shape)
    return g.serialise()


def build_level(cell: Cell, head_rows: FloatArray, *, quantised: bool = True) -> bytes:
    """Serialised graph of one level. head_rows [Vd, d]: LM head of the draft vocabulary."""
    g = DraftGraph(quantised=quantised)
    state = tuple(g.input(f"state_{part}", np.float32, ["N", width]) for part, width in enumerate(cell.widths))
    embedded = g.input("embedded", np.float32, ["N", head_rows.shape[1]])
    level, branching = g.input("level", np.int64, [1]), g.input("branching", np.int64, [1])
    for name, shape in cell.shared.items():
        g.input(name, np.float32, shape)
    following, reads = cell.step(g, state, embedded, level)
    for part, (name, width) in enumerate(zip(following, cell.widths, strict=True)):
        g.output(g.node("Identity", [name], f"next_{part}"), np.float32, ["N", width])
    log_q = g.node("LogSoftmax", [g.linear(reads, "lm_head", head_rows, "logits")], "log_q", axis=-1)
    g.nodes("TopK", [log_q, branching], ["logprobs", "ids"], axis=-1)
    g.output("ids", np.int64, ["N", "B"])
    g.output("logprobs", np.float32, ["N", "B"])
    return g.serialise()
