"""Greedy acceptance: a child is accepted if it carries the argmax. Exact at temperature 0."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from medusakit.runtimes.base import Scores
from medusakit.tree.topology import FloatArray
from medusakit.verify.base import Verdict
from medusakit.verify.processors import Adjustments


def carrying(children: Sequence[tuple[int, int]], token_id: int) -> tuple[int, ...]:
    """The child that carries the token, as the exact rules accept it: none or one."""
    for child, token in children:
        if token == token_id:
            return (child,)
    return ()


@dataclass(frozen=True, slots=True)
class GreedyRule:
    """Argmax of the adjusted logits, lowest id on ties. Without adjustments no logits are read at all.

    want_logprobs  also give log p of the pick, under softmax of the adjusted logits (temperature 1)
    """

    adjustments: Adjustments | None = None
    want_logprobs: bool = False
    name: str = "greedy"
    lossless: bool = True

    def decide(self, scores: Scores, node: int, children: Sequence[tuple[int, int]], history: Sequence[int]) -> Verdict:
        if self.adjustments is None and not self.want_logprobs:
            pick = scores.argmax(node)
            return Verdict(carrying(children, pick), pick)
        logits = scores.logits(node)
        if self.adjustments is not None:
            logits = self.adjustments.apply(logits, history)
        pick = scores.argmax(node) if self.adjustments is None else int(logits.argmax())
        logprob = float(logits[pick]) - _logsumexp(logits) if self.want_logprobs else float("nan")
        return Verdict(carrying(children, pick), pick, logprob=logprob)


def _logsumexp(logits: FloatArray) -> float:
    top = logits.max()
    return float(top + np.log(np.exp(logits - top).sum()))
