"""The convolution and the LSTM as ONNX nodes (see cnn_lstm/torch.py for the formulas).

Inputs besides those of recurrent/graph.py: before_hidden and before_embedded [R, window - 1, d], the positions before
t, the newest last, zeros where there is none.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from medusakit.drafters.cnn_lstm.config import CnnLstmParams
from medusakit.drafters.graph import DraftGraph
from medusakit.drafters.recurrent.graph import State
from medusakit.tree.topology import FloatArray


class CnnLstmCell:
    """Its state: the LSTM's output and memory, and h_t, which every prediction adds to."""

    def __init__(self, params: CnnLstmParams, tensors: Mapping[str, FloatArray], hidden_size: int) -> None:
        self._tensors, self._size, self._window = tensors, hidden_size, params.window
        self.widths = (params.cell, params.cell, hidden_size)

    def start(self, g: DraftGraph, hidden: str, root: str) -> State:
        shape: tuple[int | str, ...] = ("R", self._window - 1, self._size)
        before = (g.input("before_hidden", np.float32, shape), g.input("before_embedded", np.float32, shape))
        states = g.node("Concat", [before[0], hidden], "window_hidden", axis=1)
        tokens = g.node("Concat", [before[1], root], "window_tokens", axis=1)
        positions = g.node("Concat", [g.rms(states, self._size, "window_normed"), tokens], "positions", axis=-1)
        weighted = g.node("Mul", [positions, self._constant(g, "kernel")], "weighted")
        mixed = g.node("ReduceSum", [weighted, g.ints(1)], "convolved", keepdims=1)
        mixed = g.node("Add", [mixed, self._constant(g, "kernel_bias")], "convolved_biased")
        begun = g.linear(g.silu(mixed, "convolved_silu"), "w_start", self._tensors["w_start"], "begun")
        g.nodes("Split", [begun], ["begun_output", "begun_memory"], axis=-1, num_outputs=2)
        return g.node("Tanh", ["begun_output"], "output_start"), "begun_memory", hidden

    def step(self, g: DraftGraph, state: State, embedded: str, level: int) -> tuple[State, str]:
        at, (output, memory, base) = f"_{level}", state
        token = g.linear(embedded, "w_token", self._tensors["w_token"], f"of_token{at}")
        cell = g.linear(output, "w_cell", self._tensors["w_cell"], f"of_cell{at}")
        mixed = g.node("Add", [g.node("Add", [token, cell], f"mixed{at}"), self._depth(g, level)], f"gates{at}")
        g.nodes("Split", [mixed], [f"gate_{part}{at}" for part in "ifgo"], axis=-1, num_outputs=4)
        held = g.node("Mul", [g.node("Sigmoid", [f"gate_f{at}"], f"keep{at}"), memory], f"held{at}")
        new = g.node("Tanh", [f"gate_g{at}"], f"new{at}")
        added = g.node("Mul", [g.node("Sigmoid", [f"gate_i{at}"], f"let_in{at}"), new], f"added{at}")
        memory = g.node("Add", [held, added], f"memory{at}")
        shown = g.node("Tanh", [memory], f"shown{at}")
        output = g.node("Mul", [g.node("Sigmoid", [f"gate_o{at}"], f"let_out{at}"), shown], f"output{at}")
        delta = g.linear(output, "w_out", self._tensors["w_out"], f"delta{at}")
        return (output, memory, base), g.node("Add", [base, delta], f"predicted{at}")

    def _constant(self, g: DraftGraph, name: str) -> str:
        return g.constant(name, self._tensors[name])

    def _depth(self, g: DraftGraph, level: int) -> str:
        return g.constant(f"depth_{level}", self._tensors["depth"][level])
