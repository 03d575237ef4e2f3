"""The state-space drafter as ONNX nodes (see ssm/torch.py for the formulas).

The start reads besides hidden state and root, for the M positions that were committed since the last draft (M >= 1):
    before_hidden, before_embedded [R, M, d]   zeros where a row has fewer
    known [R, M, 1]                            1.0 where there is a position, 0.0 where there is none
    carried [R, w]                             the memory before them
The memory after them, state_0, is what is carried to the next draft.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from medusakit.drafters.graph import DraftGraph
from medusakit.drafters.recurrent.graph import State
from medusakit.drafters.ssm.config import SsmParams
from medusakit.tree.topology import FloatArray


class SsmCell:
    """Its state: the memory, and the prediction, which is h_t at the start."""

    has_start = True
    shared: Mapping[str, Sequence[int | str]] = {}

    def __init__(self, params: SsmParams, tensors: Mapping[str, FloatArray], hidden_size: int) -> None:
        self._tensors, self._size = tensors, hidden_size
        self.widths = (params.memory, hidden_size)

    def start(self, g: DraftGraph, hidden: str, root: str) -> State:
        """All positions at once: m' = (prod keep) m + sum_i (prod_{j > i} keep_j) (1 - keep_i) v_i."""
        shapes = {"before_hidden": self._size, "before_embedded": self._size, "known": 1}
        predicted, embedded, known = (g.input(name, np.float32, ["R", "M", size]) for name, size in shapes.items())
        carried = g.input("carried", np.float32, ["R", self.widths[0]])
        decay, value, _ = self._mixed(g, predicted, embedded, g.ints(0))
        negated = g.node("Neg", [decay], "negated")
        loss = g.node("Mul", [g.node("Softplus", [negated], "softplus"), known], "loss")  # -log keep
        axis = g.constant("axis", np.array(1, np.int64))
        later = g.node("CumSum", [loss, axis], "loss_later", exclusive=1, reverse=1)
        share = g.node("Mul", [_exp_negative(g, later, "later"), g.node("Sigmoid", [negated], "let_in")], "share")
        added = g.node("Mul", [g.node("Mul", [share, value], "weighted"), known], "added")
        total = g.node("ReduceSum", [loss, g.ints(1)], "loss_total", keepdims=0)
        kept = g.node("Mul", [_exp_negative(g, total, "total"), carried], "kept")
        return g.node("Add", [kept, g.node("ReduceSum", [added, g.ints(1)], "sum", keepdims=0)], "memory"), hidden

    def step(self, g: DraftGraph, state: State, embedded: str, level: str) -> tuple[State, str]:
        memory, predicted = state
        decay, value, gate = self._mixed(g, predicted, embedded, level)
        further = g.node("Sub", [memory, value], "further")
        held = g.node("Mul", [g.node("Sigmoid", [decay], "keep"), further], "held")
        memory = g.node("Add", [value, held], "memory")  # keep * m + (1 - keep) * v
        skipped = g.node("Mul", [value, g.constant("skip", self._tensors["skip"])], "skipped")
        shown = g.node("Add", [memory, skipped], "shown")
        inner = g.node("Mul", [g.silu(gate, "gated"), shown], "inner")
        delta = g.linear(inner, "w_out", self._tensors["w_out"], "delta")
        predicted = g.node("Add", [predicted, delta], "predicted")
        return (memory, predicted), predicted

    def _mixed(self, g: DraftGraph, predicted: str, embedded: str, level: str) -> tuple[str, str, str]:
        """Decay, value and gate [..., w]."""
        reads = g.node("Concat", [g.rms(predicted, self._size, "normed"), embedded], "reads", axis=-1)
        mixed = g.linear(reads, "w_in", self._tensors["w_in"], "mixed")
        depth = g.node("Gather", [g.constant("depth", self._tensors["depth"]), level], "depth_now")
        g.nodes("Split", [g.node("Add", [mixed, depth], "shifted")], ["decay", "value", "gate"], axis=-1, num_outputs=3)
        return "decay", "value", "gate"


def _exp_negative(g: DraftGraph, x: str, name: str) -> str:
    return g.node("Exp", [g.node("Neg", [x], f"{name}_negated")], f"{name}_share")
