"""The whole draft of a recurrent drafter as one ONNX graph: every depth, and the best ids of each.

What happens at one depth is the family's `Cell`; what is the same for all of them is here. Two kinds, one graph per
kind and number of levels, for any tree and any number of rows:

    topology  `take_k` [m] says which flat places of level k's table are expanded next (the same for every row)
    beam      level k's table is cut to its `width_k` most probable paths inside the graph

Inputs (R rows, d hidden size), and what the cell asks for besides:
    hidden [R, d], root [R, d]       root: rms(e(root))
    branching_k [1] int64            guesses under each expanded node of level k
Outputs per level: ids_k [R, parents, branching] int64 (places in the draft vocabulary), logprobs_k float32;
beam: chosen_k [R, width] int64, flat places in level k's table.
"""

from __future__ import annotations

from typing import Literal, Protocol

import numpy as np

from medusakit.drafters.graph import DraftGraph
from medusakit.drafters.rows import rms_normalised
from medusakit.tree.topology import FloatArray

Kind = Literal["topology", "beam"]
State = tuple[str, ...]
"""Names of the tensors [R, N, w_i] that a node carries on to its children."""


class Cell(Protocol):
    """One depth of a recurrent family, as ONNX nodes."""

    @property
    def widths(self) -> tuple[int, ...]:
        """w_i of each tensor of the state."""
        ...

    def start(self, g: DraftGraph, hidden: str, root: str) -> State:
        """The state [R, 1, w_i] before the root is read; declares inputs of its own. hidden, root [R, 1, d]."""
        ...

    def step(self, g: DraftGraph, state: State, embedded: str, level: int) -> tuple[State, str]:
        """Reads a token at every node: state [R, N, w_i] and rms(e(token)) [R, N, d] give the next state, and [R, N, d]
        what the LM head reads."""
        ...


def build_recurrent(
    cell: Cell,
    *,
    kind: Kind,
    levels: int,
    head_rows: FloatArray,
    embedding_rows: FloatArray,
    quantised: bool = True,
) -> bytes:
    """Serialised graph. head_rows, embedding_rows [Vd, d]: LM head and embedding of the draft vocabulary."""
    return _Levels(DraftGraph(quantised=quantised), cell, kind, head_rows, embedding_rows).build(levels)


class _Levels:
    def __init__(
        self, graph: DraftGraph, cell: Cell, kind: Kind, head_rows: FloatArray, embedding_rows: FloatArray
    ) -> None:
        self._g, self._cell, self._kind = graph, cell, kind
        self._head_rows, self._embedding_rows = head_rows, embedding_rows
        self._size = head_rows.shape[1]

    def build(self, levels: int) -> bytes:
        g = self._g
        hidden, embedded = (
            g.node("Unsqueeze", [g.input(name, np.float32, ["R", self._size]), g.ints(1)], f"{name}_node")
            for name in ("hidden", "root")
        )
        state, total = self._cell.start(g, hidden, embedded), ""
        for level in range(levels):
            state, reads = self._cell.step(g, state, embedded, level)
            ids, scores = self._guess(reads, level)
            if level + 1 < levels or self._kind == "beam":
                take, total = self._choose(scores, total, level)
            if level + 1 < levels:
                state, embedded = self._expand(state, ids, take, level)
        return g.serialise()

    def _guess(self, reads: str, level: int) -> tuple[str, str]:
        """Best draft ids and their log-probs under every expanded node: [R, N, branching]."""
        g = self._g
        logits = g.linear(reads, "lm_head", self._head_rows, f"logits_{level}")
        log_q = g.node("LogSoftmax", [logits], f"log_q_{level}", axis=-1)
        branching = g.input(f"branching_{level}", np.int64, [1])
        g.nodes("TopK", [log_q, branching], [f"logprobs_{level}", f"ids_{level}"], axis=-1)
        g.output(f"ids_{level}", np.int64, ["R", f"N{level}", f"B{level}"])
        g.output(f"logprobs_{level}", np.float32, ["R", f"N{level}", f"B{level}"])
        return f"ids_{level}", f"logprobs_{level}"

    def _choose(self, scores: str, total: str, level: int) -> tuple[str, str]:
        """Flat places [R or 1, m] to keep of this level's table, and (beam) their path log-probs [R, m]."""
        g = self._g
        if self._kind == "topology":
            return g.node(
                "Unsqueeze", [g.input(f"take_{level}", np.int64, [f"M{level}"]), g.ints(0)], f"places_{level}"
            ), ""
        if total:
            column = g.node("Unsqueeze", [total, g.ints(2)], f"total_column_{level}")
            scores = g.node("Add", [scores, column], f"path_{level}")
        flat = g.node("Flatten", [scores], f"flat_{level}", axis=1)
        width = g.input(f"width_{level}", np.int64, [1])
        g.nodes("TopK", [flat, width], [f"kept_{level}", f"chosen_{level}"], axis=-1)
        g.output(f"chosen_{level}", np.int64, ["R", f"M{level}"])
        return f"chosen_{level}", f"kept_{level}"

    def _expand(self, state: State, ids: str, take: str, level: int) -> tuple[State, str]:
        """The parents' state [R, m, w_i] and the tokens' embeddings [R, m, d] of the places kept."""
        g, at = self._g, f"_{level}"
        parent = g.node("Div", [take, f"branching{at}"], f"parent{at}")
        shape = g.node("Shape", [ids], f"table_shape{at}")
        rows = g.node("Gather", [shape, g.ints(0)], f"rows{at}", axis=0)
        parents = g.node("Gather", [shape, g.ints(1)], f"parents{at}", axis=0)
        table = g.node("Mul", [parents, f"branching{at}"], f"table_size{at}")
        zero, one = g.constant("zero", np.array(0, np.int64)), g.constant("one", np.array(1, np.int64))
        index = g.node("Range", [zero, g.node("Squeeze", [rows], f"rows_scalar{at}"), one], f"row_index{at}")
        column = g.node("Unsqueeze", [index, g.ints(1)], f"row_column{at}")
        node = self._offset(column, parents, parent, f"node{at}")
        place = self._offset(column, table, take, f"place{at}")
        carried = tuple(
            self._gather(name, width, node, f"state_{part}{at}")
            for part, (name, width) in enumerate(zip(state, self._cell.widths, strict=True))
        )
        tokens = g.node("Gather", [g.node("Reshape", [ids, g.ints(-1)], f"flat_ids{at}"), place], f"tokens{at}")
        return carried, g.lookup("embedding", rms_normalised(self._embedding_rows), tokens, f"embedded{at}_next")

    def _gather(self, state: str, width: int, node: str, name: str) -> str:
        flat = self._g.node("Reshape", [state, self._g.ints(-1, width)], f"{name}_flat")
        return self._g.node("Gather", [flat, node], f"{name}_next")

    def _offset(self, column: str, stride: str, index: str, name: str) -> str:
        start = self._g.node("Mul", [column, stride], f"{name}_start")
        return self._g.node("Add", [start, index], name)
