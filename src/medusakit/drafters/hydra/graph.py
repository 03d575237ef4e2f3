"""Hydra's cell as ONNX nodes (see hydra/torch.py for the formula, recurrent/graph.py for the graph around it)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from medusakit.drafters.graph import DraftGraph
from medusakit.drafters.recurrent.graph import State
from medusakit.tree.topology import FloatArray


class HydraCell:
    """Its state is the prediction itself, h_t at the start."""

    has_start = False
    shared: Mapping[str, Sequence[int | str]] = {}

    def __init__(self, tensors: Mapping[str, FloatArray], hidden_size: int) -> None:
        self._tensors, self._size = tensors, hidden_size
        self.widths = (hidden_size,)

    def start(self, g: DraftGraph, hidden: str, root: str) -> State:
        return (hidden,)

    def step(self, g: DraftGraph, state: State, embedded: str, level: str) -> tuple[State, str]:
        reads = g.node("Concat", [g.rms(state[0], self._size, "normed"), embedded], "reads", axis=-1)
        mixed = g.linear(reads, "w_in", self._tensors["w_in"], "mixed")
        depth = g.node("Gather", [g.constant("depth", self._tensors["depth"]), level], "depth_now")
        g.nodes("Split", [g.node("Add", [mixed, depth], "shifted")], ["gate", "up"], axis=-1, num_outputs=2)
        inner = g.node("Mul", [g.silu("gate", "gated"), "up"], "inner")
        delta = g.linear(inner, "w_out", self._tensors["w_out"], "delta")
        following = g.node("Add", [state[0], delta], "following")
        return (following,), following
