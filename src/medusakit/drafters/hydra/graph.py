"""Hydra's cell as ONNX nodes (see hydra/torch.py for the formula, recurrent/graph.py for the graph around it)."""

from __future__ import annotations

from collections.abc import Mapping

from medusakit.drafters.graph import DraftGraph
from medusakit.drafters.recurrent.graph import State
from medusakit.tree.topology import FloatArray


class HydraCell:
    """Its state is the prediction itself, h_t at the start."""

    def __init__(self, tensors: Mapping[str, FloatArray], hidden_size: int) -> None:
        self._tensors, self._size = tensors, hidden_size
        self.widths = (hidden_size,)

    def start(self, g: DraftGraph, hidden: str, root: str) -> State:
        return (hidden,)

    def step(self, g: DraftGraph, state: State, embedded: str, level: int) -> tuple[State, str]:
        at = f"_{level}"
        reads = g.node("Concat", [g.rms(state[0], self._size, f"normed{at}"), embedded], f"reads{at}", axis=-1)
        mixed = g.linear(reads, "w_in", self._tensors["w_in"], f"mixed{at}")
        mixed = g.node("Add", [mixed, g.constant(f"depth{at}", self._tensors["depth"][level])], f"shifted{at}")
        g.nodes("Split", [mixed], [f"gate{at}", f"up{at}"], axis=-1, num_outputs=2)
        inner = g.node("Mul", [g.silu(f"gate{at}", f"silu{at}"), f"up{at}"], f"inner{at}")
        delta = g.linear(inner, "w_out", self._tensors["w_out"], f"delta{at}")
        following = g.node("Add", [state[0], delta], f"next{at}")
        return (following,), following
