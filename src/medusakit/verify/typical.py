"""Typical acceptance (Medusa, arXiv 2401.10774, section 2.3.1): lossy, and labelled so wherever it shows.

A child x is acceptable if p(x) > min(eps, delta * exp(-H(p))); the walk keeps the longest acceptable path and, among
equally long ones, the most probable. The token at its end is the argmax, so that every step makes progress.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from medusakit.runtimes.base import Scores
from medusakit.tree.topology import FloatArray
from medusakit.verify.base import Verdict
from medusakit.verify.processors import Adjustments, Filter, adjusted

FLOOR = np.float32(-1e4)  # keeps p log p = 0 for ids with a score of minus infinity


@dataclass(frozen=True, slots=True)
class TypicalRule:
    """eps: the highest threshold; delta: scale of the entropy-dependent one. Entropy in float32, in nats."""

    filter: Filter
    eps: float = 0.09
    delta: float = 0.3
    adjustments: Adjustments | None = None
    name: str = "typical"
    lossless: bool = False
    path_weight: float = 0.0

    def after(self, offered: int, accepted: int) -> TypicalRule:
        return self

    def decide(self, scores: Scores, node: int, children: Sequence[tuple[int, int]], history: Sequence[int]) -> Verdict:
        survivors = self.filter.apply(adjusted(scores.logits(node), self.adjustments, history))
        log_p, entropy = _log_softmax(survivors.z)
        threshold = min(self.eps, self.delta * float(np.exp(-entropy)))
        accepted, weights = [], []
        for child, token in children:
            index = survivors.index(token)
            if index is not None and float(np.exp(log_p[index])) > threshold:
                accepted.append(child)
                weights.append(float(log_p[index]))
        best = int(log_p.argmax())
        return Verdict(tuple(accepted), survivors.token(best), tuple(weights), float(log_p[best]))


def _log_softmax(z: FloatArray) -> tuple[FloatArray, np.float32]:
    """(log p [m], entropy in nats) of softmax(z), where max z = 0."""
    log_p = np.maximum(z, FLOOR)
    weights = np.exp(log_p)
    total = weights.sum()
    log_total = np.log(total)
    entropy = log_total - weights @ log_p / total
    return log_p - log_total, entropy
