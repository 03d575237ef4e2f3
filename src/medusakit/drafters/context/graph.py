"""The context layer as ONNX nodes (see context/torch.py for the formulas).

The start reads besides hidden state and root, with C positions read by earlier drafts and M committed since then:
    past_keys, past_values [R, C, w]           zeros where a row has fewer
    before_hidden, before_embedded [R, M, d]   likewise
    distance [R, C + M]                        of each of those to t, FAR where there is none or it is not seen
It makes committed_keys, committed_values [R, M, w], which are the next draft's past, and for every level the P = C + M
positions in the form in which its nodes look at them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from medusakit.drafters.context.config import HEAD_SIZE, ContextParams
from medusakit.drafters.graph import DraftGraph
from medusakit.drafters.recurrent.graph import State
from medusakit.tree.topology import FloatArray

FAR = np.float32(1e15)  # whatever a head's slope, exp(-slope * FAR) is zero


class ContextCell:
    """Its state: the prediction, and keys and values of the path so far, [N, D * w] with a place for every depth."""

    has_start = True

    def __init__(self, params: ContextParams, tensors: Mapping[str, FloatArray], hidden_size: int) -> None:
        self._tensors, self._size, self._heads, self._width = tensors, hidden_size, params.heads, params.width
        self._slope = np.exp(tensors["log_slope"]).astype(np.float32)
        self._depth = len(tensors["depth"])
        self.widths = (hidden_size, self._depth * params.width, self._depth * params.width)
        self.shared: Mapping[str, Sequence[int | str]] = {
            "seen_keys": ("R", self._heads, HEAD_SIZE, "P"),
            "seen_values": ("R", self._heads, "P", HEAD_SIZE),
            "seen_bias": ("R", self._heads, 1, "P"),
        }

    def start(self, g: DraftGraph, hidden: str, root: str) -> State:
        before = [g.input(f"before_{part}", np.float32, ["R", "M", self._size]) for part in ("hidden", "embedded")]
        reads = g.node("Concat", [g.rms(before[0], self._size, "normed"), before[1]], "reads", axis=-1)
        self._read(g, reads, {"w_qkv": self._tensors["w_qkv"]})
        for part, turned in (("keys", [0, 2, 3, 1]), ("values", [0, 2, 1, 3])):
            past = g.input(f"past_{part}", np.float32, ["R", "C", self._width])
            new = g.node("Identity", [part], g.output(f"committed_{part}", np.float32, ["R", "M", self._width]))
            joined = g.node("Concat", [past, new], f"{part}_joined", axis=1)
            split = g.node("Reshape", [joined, g.ints(0, 0, self._heads, HEAD_SIZE)], f"{part}_by_head")
            g.node("Transpose", [split], f"seen_{part}", perm=turned)
        distance = g.node("Unsqueeze", [g.input("distance", np.float32, ["R", "P"]), g.ints(1, 2)], "distance_by_head")
        g.node("Mul", [distance, g.constant("penalty", -self._slope[:, None, None])], "seen_bias")
        empty = g.constant("empty", np.zeros((1, self.widths[1]), np.float32))
        shape = g.node("Concat", [_rows(g, hidden, "num_rows"), g.ints(self.widths[1])], "empty_shape", axis=0)
        path = g.node("Expand", [empty, shape], "empty_path")
        return hidden, path, path

    def step(self, g: DraftGraph, state: State, embedded: str, level: str) -> tuple[State, str]:
        predicted, keys, values = state
        reads = g.node("Concat", [g.rms(predicted, self._size, "normed"), embedded], "reads", axis=-1)
        self._read(g, reads, {name: self._tensors[name] for name in ("w_qkv", "w_in")})
        here = self._at_level(g, "here", np.eye(self._depth, dtype=np.float32)[:, :, None, None], level)
        keys, values = (self._placed(g, old, part, here) for old, part in ((keys, "keys"), (values, "values")))
        found = self._attend(g, keys, values, level)
        of_found = g.linear(found, "w_found", self._tensors["w_found"], "of_found")
        depth = self._at_level(g, "depth", self._tensors["depth"], level)
        mixed = g.node("Add", [g.node("Add", ["of_reads", of_found], "mixed"), depth], "shifted")
        g.nodes("Split", [mixed], ["gate", "up"], axis=-1, num_outputs=2)
        inner = g.node("Mul", [g.silu("gate", "gated"), "up"], "inner")
        delta = g.linear(inner, "w_out", self._tensors["w_out"], "delta")
        predicted = g.node("Add", [predicted, delta], "predicted")
        flat = (g.node("Reshape", [x, g.ints(0, self.widths[1])], f"{x}_flat") for x in (keys, values))
        return (predicted, *flat), predicted

    def _read(self, g: DraftGraph, reads: str, weights: Mapping[str, FloatArray]) -> None:
        """Makes query, keys and values [..., w] and, of w_in, of_reads [..., 2 * inner], in one product."""
        packed = g.linear(reads, "w_reads", np.concatenate(list(weights.values())), "packed")
        names, sizes = ["query", "keys", "values"], [self._width] * 3
        if "w_in" in weights:
            names, sizes = [*names, "of_reads"], [*sizes, len(weights["w_in"])]
        g.nodes("Split", [packed, g.ints(*sizes)], names, axis=-1)

    def _placed(self, g: DraftGraph, old: str, own: str, here: str) -> str:
        """[N, D, heads, HEAD_SIZE]: those of the ancestors, and the nodes' own at their level."""
        path = g.node("Reshape", [old, g.ints(0, self._depth, self._heads, HEAD_SIZE)], f"{own}_before")
        new = g.node("Reshape", [own, g.ints(0, 1, self._heads, HEAD_SIZE)], f"{own}_new")
        return g.node("Add", [path, g.node("Mul", [new, here], f"{own}_here")], f"{own}_path")

    def _attend(self, g: DraftGraph, keys: str, values: str, level: str) -> str:
        """[N, w]: what the heads find, over the path and over committed positions."""
        scale = g.constant("scale", np.array(HEAD_SIZE**-0.5, np.float32))
        query = g.node("Mul", ["query", scale], "query_scaled")
        weights = g.node("Softmax", [
            g.node("Concat", [self._on_path(g, query, keys, level), self._on_past(g, query, level)], "scores", axis=-1)
        ], "weights", axis=-1)  # fmt: skip
        near = g.node("Slice", [weights, g.ints(0), g.ints(self._depth), g.ints(2)], "weights_path")
        near = g.node("Unsqueeze", [g.node("Transpose", [near], "near_turned", perm=[0, 2, 1]), g.ints(3)], "near_wide")
        of_path = g.node("ReduceSum", [g.node("Mul", [near, values], "weighted"), g.ints(1)], "of_path", keepdims=0)
        far = g.node("Slice", [weights, g.ints(self._depth), g.ints(2**62), g.ints(2)], "weights_past")
        of_past = g.node("MatMul", [self._by_row(g, far, -1, "far"), "seen_values"], "of_past_by_row")
        of_past = self._by_node(g, of_past, HEAD_SIZE, "of_past")
        return g.node("Reshape", [g.node("Add", [of_path, of_past], "found"), g.ints(0, self._width)], "found_flat")

    def _on_path(self, g: DraftGraph, query: str, keys: str, level: str) -> str:
        """[N, heads, D] scores, deeper places shut out."""
        single = g.node("Reshape", [query, g.ints(0, 1, self._heads, HEAD_SIZE)], "query_single")
        scores = g.node("ReduceSum", [g.node("Mul", [single, keys], "products"), g.ints(3)], "own", keepdims=0)
        up = np.subtract.outer(np.arange(self._depth), np.arange(self._depth))[:, :, None]
        penalty = np.where(up >= 0, -up * self._slope, -FAR).astype(np.float32)  # [level, place, heads]
        scores = g.node("Add", [scores, self._at_level(g, "own_penalty", penalty, level)], "own_scores")
        return g.node("Transpose", [scores], "own_turned", perm=[0, 2, 1])

    def _on_past(self, g: DraftGraph, query: str, level: str) -> str:
        """[N, heads, P] scores."""
        scores = g.node("MatMul", [self._by_row(g, query, HEAD_SIZE, "query"), "seen_keys"], "seen_scores")
        deeper = -np.arange(self._depth, dtype=np.float32)[:, None, None, None] * self._slope[:, None, None]
        scores = g.node("Add", [scores, "seen_bias"], "seen_near")
        scores = g.node("Add", [scores, self._at_level(g, "deeper", deeper, level)], "seen_far")
        return self._by_node(g, scores, -1, "past")

    def _by_row(self, g: DraftGraph, x: str, width: int, name: str) -> str:
        """[N, heads (x) width] -> [R, heads, N / R, width]; width -1: the last of x's."""
        last = g.ints(width) if width > 0 else g.node("Shape", [x], f"{name}_last", start=2)
        shape = g.node(
            "Concat", [_rows(g, "seen_bias", f"{name}_num"), g.ints(-1, self._heads), last], f"{name}_rows", axis=0
        )
        return g.node(
            "Transpose", [g.node("Reshape", [x, shape], f"{name}_by_row")], f"{name}_heads", perm=[0, 2, 1, 3]
        )

    def _by_node(self, g: DraftGraph, x: str, width: int, name: str) -> str:
        """[R, heads, m, width] -> [R * m, heads, width]."""
        last = g.ints(width) if width > 0 else g.node("Shape", [x], f"{name}_end", start=3)
        shape = g.node("Concat", [g.ints(-1, self._heads), last], f"{name}_shape", axis=0)
        turned = g.node("Transpose", [x], f"{name}_turned", perm=[0, 2, 1, 3])
        return g.node("Reshape", [turned, shape], f"{name}_by_node")

    def _at_level(self, g: DraftGraph, name: str, table: FloatArray, level: str) -> str:
        """Row `level` of a constant table [D, ...], as [1, ...]."""
        return g.node("Gather", [g.constant(f"{name}_table", table), level], f"{name}_now")


def _rows(g: DraftGraph, x: str, name: str) -> str:
    """[1] its first dimension."""
    return g.node("Shape", [x], name, start=0, end=1)
