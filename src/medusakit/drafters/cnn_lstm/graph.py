"""The convolution and the LSTM as ONNX nodes (see cnn_lstm/torch.py for the formulas).

The start reads besides hidden state and root: before_hidden and before_embedded [R, window - 1, d], the positions
before t, the newest last, zeros where there is none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from medusakit.drafters.cnn_lstm.config import CnnLstmParams
from medusakit.drafters.graph import DraftGraph
from medusakit.drafters.recurrent.graph import State
from medusakit.tree.topology import FloatArray


class CnnLstmCell:
    """Its state: the LSTM's output and memory, and h_t, which every prediction adds to."""

    has_start = True
    shared: Mapping[str, Sequence[int | str]] = {}

    def __init__(self, params: CnnLstmParams, tensors: Mapping[str, FloatArray], hidden_size: int) -> None:
        self._tensors, self._size, self._window = tensors, hidden_size, params.window
        self.widths = (params.cell, params.cell, hidden_size)

    def start(self, g: DraftGraph, hidden: str, root: str) -> State:
        states, tokens = (
            self._window_of(g, before, newest) for before, newest in (("hidden", hidden), ("embedded", root))
        )
        positions = g.node("Concat", [g.rms(states, self._size, "normed"), tokens], "positions", axis=-1)
        weighted = g.node("Mul", [positions, g.constant("kernel", self._tensors["kernel"])], "weighted")
        summed = g.node("ReduceSum", [weighted, g.ints(1)], "summed", keepdims=0)
        mixed = g.node("Add", [summed, g.constant("kernel_bias", self._tensors["kernel_bias"])], "mixed")
        begun = g.linear(g.silu(mixed, "active"), "w_start", self._tensors["w_start"], "begun")
        g.nodes("Split", [begun], ["begun_output", "begun_memory"], axis=-1, num_outputs=2)
        return g.node("Tanh", ["begun_output"], "output"), "begun_memory", hidden

    def step(self, g: DraftGraph, state: State, embedded: str, level: str) -> tuple[State, str]:
        output, memory, base = state
        token = g.linear(embedded, "w_token", self._tensors["w_token"], "of_token")
        cell = g.linear(output, "w_cell", self._tensors["w_cell"], "of_cell")
        depth = g.node("Gather", [g.constant("depth", self._tensors["depth"]), level], "depth_now")
        mixed = g.node("Add", [g.node("Add", [token, cell], "mixed"), depth], "gates")
        g.nodes("Split", [mixed], ["let_in", "keep", "new", "let_out"], axis=-1, num_outputs=4)
        held = g.node("Mul", [g.node("Sigmoid", ["keep"], "keep_share"), memory], "held")
        new = g.node("Tanh", ["new"], "new_value")
        added = g.node("Mul", [g.node("Sigmoid", ["let_in"], "let_in_share"), new], "added")
        memory = g.node("Add", [held, added], "memory")
        shown = g.node("Tanh", [memory], "shown")
        output = g.node("Mul", [g.node("Sigmoid", ["let_out"], "let_out_share"), shown], "output")
        delta = g.linear(output, "w_out", self._tensors["w_out"], "delta")
        return (output, memory, base), g.node("Add", [base, delta], "predicted")

    def _window_of(self, g: DraftGraph, name: str, newest: str) -> str:
        """[R, window, d]: the positions before t, and t."""
        before = g.input(f"before_{name}", np.float32, ["R", self._window - 1, self._size])
        last = g.node("Unsqueeze", [newest, g.ints(1)], f"last_{name}")
        return g.node("Concat", [before, last], f"window_{name}", axis=1)
