"""The context layer as ONNX nodes (see context/torch.py for the formulas).

Inputs besides those of recurrent/graph.py, with C positions read by earlier drafts and M committed since then:
    past_keys, past_values [R, C, w]           zeros where a row has fewer
    before_hidden, before_embedded [R, M, d]   likewise
    distance [R, C + M]                        of each of those to t, FAR where there is none or it is not seen
Outputs besides: committed_keys, committed_values [R, M, w], which are the next draft's past.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from medusakit.drafters.context.config import HEAD_SIZE, ContextParams
from medusakit.drafters.graph import DraftGraph
from medusakit.drafters.recurrent.graph import State
from medusakit.tree.topology import FloatArray

FAR = np.float32(1e15)  # whatever a head's slope, exp(-slope * FAR) is zero


class ContextCell:
    """Its state: the prediction, and the keys and values of the path so far, with room for those of every depth."""

    def __init__(self, params: ContextParams, tensors: Mapping[str, FloatArray], hidden_size: int) -> None:
        self._tensors, self._size, self._heads, self._width = tensors, hidden_size, params.heads, params.width
        self._slope = np.exp(tensors["log_slope"]).astype(np.float32)
        self._room = len(tensors["depth"]) * params.width
        self.widths = (hidden_size, self._room, self._room)

    def start(self, g: DraftGraph, hidden: str, root: str) -> State:
        before = [g.input(f"before_{part}", np.float32, ["R", "M", self._size]) for part in ("hidden", "embedded")]
        reads = g.node("Concat", [g.rms(before[0], self._size, "normed_before"), before[1]], "reads_before", axis=-1)
        self._read(g, reads, "_before")
        for part, turned in (("keys", [0, 2, 3, 1]), ("values", [0, 2, 1, 3])):
            past = g.input(f"past_{part}", np.float32, ["R", "C", self._width])
            new = g.node(
                "Identity", [f"{part}_before"], g.output(f"committed_{part}", np.float32, ["R", "M", self._width])
            )
            joined = self._by_head(g, g.node("Concat", [past, new], f"{part}_joined", axis=1), f"{part}_split")
            g.node("Transpose", [joined], f"seen_{part}", perm=turned)
        distance = g.node("Unsqueeze", [g.input("distance", np.float32, ["R", "P"]), g.ints(1, 2)], "distance_by_head")
        penalty = g.constant("penalty", -self._slope[:, None, None])
        g.node("Mul", [distance, penalty], "bias")  # [R, heads, 1, P]
        return hidden, "", ""

    def step(self, g: DraftGraph, state: State, embedded: str, level: int) -> tuple[State, str]:
        at, (predicted, keys, values) = f"_{level}", state
        reads = g.node("Concat", [g.rms(predicted, self._size, f"normed{at}"), embedded], f"reads{at}", axis=-1)
        self._read(g, reads, at)
        keys, values = (self._path(g, old, f"{part}{at}", level) for old, part in ((keys, "keys"), (values, "values")))
        found = self._attend(g, keys, values, level)
        of_found = g.linear(found, "w_found", self._tensors["w_found"], f"of_found{at}")
        mixed = g.node("Add", [f"of_reads{at}", of_found], f"mixed{at}")
        mixed = g.node("Add", [mixed, g.constant(f"depth{at}", self._tensors["depth"][level])], f"shifted{at}")
        g.nodes("Split", [mixed], [f"gate{at}", f"up{at}"], axis=-1, num_outputs=2)
        inner = g.node("Mul", [g.silu(f"gate{at}", f"silu{at}"), f"up{at}"], f"inner{at}")
        delta = g.linear(inner, "w_out", self._tensors["w_out"], f"delta{at}")
        predicted = g.node("Add", [predicted, delta], f"predicted{at}")
        return (predicted, self._padded(g, keys, level), self._padded(g, values, level)), predicted

    def _read(self, g: DraftGraph, reads: str, at: str) -> None:
        """Makes query, keys and values [R, N, w] and of_reads [R, N, 2 * inner] of these nodes, in one product."""
        w_qkv, w_in = self._tensors["w_qkv"], self._tensors["w_in"]
        packed = g.linear(reads, "w_reads", np.concatenate([w_qkv, w_in]), f"packed{at}")
        sizes = g.ints(self._width, self._width, self._width, len(w_in))
        g.nodes("Split", [packed, sizes], [f"{part}{at}" for part in ("query", "keys", "values", "of_reads")], axis=-1)

    def _path(self, g: DraftGraph, old: str, own: str, level: int) -> str:
        """[R, N, (level + 1) * w]: those of the ancestors, and the nodes' own."""
        if not level:
            return own
        used = g.node("Slice", [old, g.ints(0), g.ints(level * self._width), g.ints(2)], f"{own}_before")
        return g.node("Concat", [used, own], f"{own}_path", axis=-1)

    def _padded(self, g: DraftGraph, path: str, level: int) -> str:
        """With the room of the deeper levels behind: [R, N, room]."""
        free = self._room - (level + 1) * self._width
        return g.node("Pad", [path, g.ints(0, 0, 0, 0, 0, free)], f"{path}_padded")

    def _attend(self, g: DraftGraph, keys: str, values: str, level: int) -> str:
        """[R, N, w]: what the heads find, over committed positions and over the path."""
        at, scale, length = f"_{level}", g.constant("scale", np.array(HEAD_SIZE**-0.5, np.float32)), level + 1
        query = g.node("Mul", [self._by_head(g, f"query{at}", f"query_split{at}"), scale], f"query_scaled{at}")
        turned = g.node("Transpose", [query], f"query_turned{at}", perm=[0, 2, 1, 3])
        far = g.node("Add", [g.node("MatMul", [turned, "seen_keys"], f"scores{at}"), "bias"], f"scores_near{at}")
        far = g.node("Add", [far, g.constant(f"deeper{at}", -level * self._slope[:, None, None])], f"scores_far{at}")
        keys, values = (self._by_level(g, part, length, f"{part}_split") for part in (keys, values))
        beside = g.node("Mul", [g.node("Unsqueeze", [query, g.ints(2)], f"query_own{at}"), keys], f"products{at}")
        own = g.node("ReduceSum", [beside, g.ints(4)], f"own{at}", keepdims=0)  # [R, N, level + 1, heads]
        own = g.node("Add", [own, g.constant(f"own_penalty{at}", self._own_penalty(length))], f"own_scores{at}")
        own = g.node("Transpose", [own], f"own_turned{at}", perm=[0, 3, 1, 2])
        weights = g.node("Softmax", [g.node("Concat", [own, far], f"all{at}", axis=-1)], f"weights{at}", axis=-1)
        on_path = g.node("Slice", [weights, g.ints(0), g.ints(length), g.ints(3)], f"on_path{at}")
        on_past = g.node("Slice", [weights, g.ints(length), g.ints(2**62), g.ints(3)], f"on_past{at}")
        past = g.node("Transpose", [g.node("MatMul", [on_past, "seen_values"], f"past{at}")], f"past_turned{at}",
                      perm=[0, 2, 1, 3])  # fmt: skip
        on_path = g.node("Transpose", [on_path], f"on_path_turned{at}", perm=[0, 2, 3, 1])
        weighted = g.node(
            "Mul", [g.node("Unsqueeze", [on_path, g.ints(4)], f"on_path_wide{at}"), values], f"weighted{at}"
        )
        found = g.node(
            "Add", [g.node("ReduceSum", [weighted, g.ints(2)], f"of_path{at}", keepdims=0), past], f"found{at}"
        )
        return g.node("Reshape", [found, g.ints(0, 0, self._width)], f"found_flat{at}")

    def _own_penalty(self, length: int) -> FloatArray:
        """[length, heads]: slope times the distance of each level of the path to the last."""
        return -np.arange(length - 1, -1, -1, dtype=np.float32)[:, None] * self._slope

    def _by_head(self, g: DraftGraph, x: str, name: str) -> str:
        return g.node("Reshape", [x, g.ints(0, 0, self._heads, HEAD_SIZE)], name)

    def _by_level(self, g: DraftGraph, x: str, length: int, name: str) -> str:
        return g.node("Reshape", [x, g.ints(0, 0, length, self._heads, HEAD_SIZE)], name)
