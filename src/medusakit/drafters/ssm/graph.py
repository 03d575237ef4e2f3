"""The state-space drafter as ONNX nodes (see ssm/torch.py for the formulas).

Inputs besides those of recurrent/graph.py, for the M positions that were committed since the last draft (M >= 1):
    before_hidden, before_embedded [R, M, d]   zeros where a row has fewer
    known [R, M, 1]                            1.0 where there is a position, 0.0 where there is none
    carried [R, w]                             the memory before them
Output besides: committed [R, w], the memory after them, which is carried to the next draft.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from medusakit.drafters.graph import DraftGraph
from medusakit.drafters.recurrent.graph import State
from medusakit.drafters.ssm.config import SsmParams
from medusakit.tree.topology import FloatArray


class SsmCell:
    """Its state: the memory, and the prediction, which is h_t at the start."""

    def __init__(self, params: SsmParams, tensors: Mapping[str, FloatArray], hidden_size: int) -> None:
        self._tensors, self._size = tensors, hidden_size
        self.widths = (params.memory, hidden_size)

    def start(self, g: DraftGraph, hidden: str, root: str) -> State:
        """All positions at once: m' = (prod keep) m + sum_i (prod_{j > i} keep_j) (1 - keep_i) v_i."""
        shapes = {"before_hidden": self._size, "before_embedded": self._size, "known": 1}
        predicted, embedded, known = (g.input(name, np.float32, ["R", "M", size]) for name, size in shapes.items())
        carried = g.node("Unsqueeze", [g.input("carried", np.float32, ["R", self.widths[0]]), g.ints(1)], "carried_row")
        self._mixed(g, predicted, embedded, 0, "_before")
        negated = g.node("Neg", ["decay_before"], "negated")
        log_keep = g.node(
            "Mul", [g.node("Softplus", [negated], "loss"), g.node("Neg", [known], "known_negated")], "log_keep"
        )
        one = g.constant("one", np.array(1, np.int64))
        later = g.node("Exp", [g.node("CumSum", [log_keep, one], "log_later", exclusive=1, reverse=1)], "later")
        later = g.node("Mul", [later, known], "later_known")
        share = g.node("Mul", [g.node("Sigmoid", [negated], "let_in"), later], "share")
        added = g.node("Mul", [share, "value_before"], "added")
        total = g.node("Exp", [g.node("ReduceSum", [log_keep, g.ints(1)], "log_total", keepdims=1)], "total")
        kept = g.node("Mul", [total, carried], "carried_kept")
        memory = g.node("Add", [kept, g.node("ReduceSum", [added, g.ints(1)], "added_sum", keepdims=1)], "memory_start")
        g.node("Squeeze", [memory, g.ints(1)], g.output("committed", np.float32, ["R", self.widths[0]]))
        return memory, hidden

    def step(self, g: DraftGraph, state: State, embedded: str, level: int) -> tuple[State, str]:
        at, (memory, predicted) = f"_{level}", state
        self._mixed(g, predicted, embedded, level, at)
        value = f"value{at}"
        further = g.node("Sub", [memory, value], f"further{at}")
        held = g.node("Mul", [g.node("Sigmoid", [f"decay{at}"], f"keep{at}"), further], f"held{at}")
        memory = g.node("Add", [value, held], f"memory{at}")  # keep * m + (1 - keep) * v
        skipped = g.node("Mul", [value, g.constant("skip", self._tensors["skip"])], f"skipped{at}")
        shown = g.node("Add", [memory, skipped], f"shown{at}")
        inner = g.node("Mul", [g.silu(f"gate{at}", f"silu{at}"), shown], f"inner{at}")
        delta = g.linear(inner, "w_out", self._tensors["w_out"], f"delta{at}")
        predicted = g.node("Add", [predicted, delta], f"predicted{at}")
        return (memory, predicted), predicted

    def _mixed(self, g: DraftGraph, predicted: str, embedded: str, level: int, at: str) -> None:
        """Makes decay, value and gate [R, N, w]."""
        reads = g.node("Concat", [g.rms(predicted, self._size, f"normed{at}"), embedded], f"reads{at}", axis=-1)
        mixed = g.linear(reads, "w_in", self._tensors["w_in"], f"mixed{at}")
        mixed = g.node("Add", [mixed, g.constant(f"depth_{level}", self._tensors["depth"][level])], f"shifted{at}")
        g.nodes("Split", [mixed], [f"decay{at}", f"value{at}", f"gate{at}"], axis=-1, num_outputs=3)
