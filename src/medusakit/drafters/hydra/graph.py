"""The whole draft of the recurrent drafter as one ONNX graph: every depth, and the best ids of each.

Two kinds, one graph per kind and number of levels, for any tree and any number of rows:

    topology  `take_k` [m] says which flat places of level k's table are expanded next (the same for every row)
    beam      level k's table is cut to its `width_k` most probable paths inside the graph

Inputs (R rows, d hidden size):
    hidden [R, d], root [R, d]       root: rms(e(root))
    branching_k [1] int64            guesses under each expanded node of level k
Outputs per level: ids_k [R, parents, branching] int64 (places in the draft vocabulary), logprobs_k float32;
beam: chosen_k [R, width] int64, flat places in level k's table.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import numpy as np

from medusakit.drafters.graph import DraftGraph
from medusakit.drafters.rows import rms_normalised
from medusakit.tree.topology import FloatArray

Kind = Literal["topology", "beam"]


def build_hydra(
    tensors: Mapping[str, FloatArray],
    *,
    kind: Kind,
    levels: int,
    head_rows: FloatArray,
    embedding_rows: FloatArray,
    quantised: bool = True,
) -> bytes:
    """Serialised graph. head_rows, embedding_rows [Vd, d]: LM head and embedding of the draft vocabulary."""
    graph = DraftGraph(quantised=quantised)
    return _HydraGraph(graph, tensors, kind, head_rows, embedding_rows).build(levels)


class _HydraGraph:
    def __init__(
        self,
        graph: DraftGraph,
        tensors: Mapping[str, FloatArray],
        kind: Kind,
        head_rows: FloatArray,
        embedding_rows: FloatArray,
    ) -> None:
        self._g, self._tensors, self._kind = graph, tensors, kind
        self._head_rows, self._embedding_rows = head_rows, embedding_rows
        self._size = head_rows.shape[1]

    def build(self, levels: int) -> bytes:
        g = self._g
        hidden = g.input("hidden", np.float32, ["R", self._size])
        root = g.input("root", np.float32, ["R", self._size])
        state = g.node("Unsqueeze", [hidden, g.ints(1)], "state_0")
        embedded = g.node("Unsqueeze", [root, g.ints(1)], "embedded_0")
        total = ""
        for level in range(levels):
            state = self._cell(state, embedded, level)
            ids, scores = self._guess(state, level)
            if level + 1 < levels or self._kind == "beam":
                take, total = self._choose(scores, total, level)
            if level + 1 < levels:
                state, embedded = self._expand(state, ids, take, level)
        return g.serialise()

    def _cell(self, state: str, embedded: str, level: int) -> str:
        """[R, N, d] -> [R, N, d]: HydraNet's recurrence (see drafters/hydra/torch.py for the formula)."""
        g, at = self._g, f"_{level}"
        reads = g.node("Concat", [self._rms(state, f"normed{at}"), embedded], f"reads{at}", axis=-1)
        mixed = g.linear(reads, "w_in", self._tensors["w_in"], f"mixed{at}")
        mixed = g.node("Add", [mixed, g.constant(f"depth{at}", self._tensors["depth"][level])], f"shifted{at}")
        g.nodes("Split", [mixed], [f"gate{at}", f"up{at}"], axis=-1, num_outputs=2)
        sigmoid = g.node("Sigmoid", [f"gate{at}"], f"sigmoid{at}")
        silu = g.node("Mul", [f"gate{at}", sigmoid], f"silu{at}")
        inner = g.node("Mul", [silu, f"up{at}"], f"inner{at}")
        return g.node("Add", [state, g.linear(inner, "w_out", self._tensors["w_out"], f"delta{at}")], f"next{at}")

    def _guess(self, state: str, level: int) -> tuple[str, str]:
        """Best draft ids and their log-probs under every expanded node: [R, N, branching]."""
        g = self._g
        logits = g.linear(state, "lm_head", self._head_rows, f"logits_{level}")
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

    def _expand(self, state: str, ids: str, take: str, level: int) -> tuple[str, str]:
        """States of the parents and embeddings of the tokens of the places kept: [R, m, d] each."""
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
        states = g.node("Reshape", [state, g.ints(-1, self._size)], f"states{at}")
        tokens = g.node("Gather", [g.node("Reshape", [ids, g.ints(-1)], f"flat_ids{at}"), place], f"tokens{at}")
        embedded = g.lookup("embedding", rms_normalised(self._embedding_rows), tokens, f"embedded{at}_next")
        return g.node("Gather", [states, node], f"state{at}_next"), embedded

    def _offset(self, column: str, stride: str, index: str, name: str) -> str:
        start = self._g.node("Mul", [column, stride], f"{name}_start")
        return self._g.node("Add", [start, index], name)

    def _rms(self, x: str, name: str) -> str:
        ones = self._g.constant("ones", np.ones(self._size, np.float32))
        return self._g.node("SimplifiedLayerNormalization", [x, ones], name, axis=-1, epsilon=1e-6)
