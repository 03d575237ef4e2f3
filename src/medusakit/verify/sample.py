"""Exact sampling: one draw per visited node, by the Gumbel-max rule with counter-based noise.

The draw is the argmax over surviving ids of log p - log(-log u), which has exactly the law p (Gumbel, 1954; Maddison et
al., arXiv 1411.0030). u is a pure function of seed, choice, position and id, so the draw at a position is the same
whatever tree led there: speculative and plain sampling give one sequence.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from medusakit.runtimes.base import Scores
from medusakit.tree.topology import FloatArray
from medusakit.verify.base import Verdict
from medusakit.verify.greedy import carrying
from medusakit.verify.philox import HalfWords, Noise
from medusakit.verify.processors import Adjustments, Filter, Survivors, adjusted

BELOW_ONE = 1 - 2.0**-53
SLACK = np.float32(1 - 1e-4)  # far above the rounding of the float32 bounds, far below what would add candidates


@dataclass(frozen=True, slots=True)
class SampleRule:
    """A child is accepted if it carries the draw; else the draw is emitted and the path ends."""

    noise: Noise
    filter: Filter
    adjustments: Adjustments | None = None
    name: str = "sample"
    lossless: bool = True
    path_weight: float = 0.0

    def after(self, offered: int, accepted: int) -> SampleRule:
        return self

    def decide(self, scores: Scores, node: int, children: Sequence[tuple[int, int]], history: Sequence[int]) -> Verdict:
        survivors = self.filter.apply(adjusted(scores.logits(node), self.adjustments, history))
        weights = np.exp(survivors.z)
        index = draw(survivors, weights, self.noise, len(history))
        pick = survivors.token(index)
        logprob = float(survivors.z[index]) - float(np.log(weights.sum()))
        return Verdict(carrying(children, pick), pick, logprob=logprob)


def draw(survivors: Survivors, weights: FloatArray, noise: Noise, position: int) -> int:
    """Index among the survivors of the draw at `position`; weights [m] = exp(z).

    log p - log(-log u) is largest where p / -log u is. From 16 bits of u come bounds of it, cheap in float32:
    k <= 65536 (1 - u) < k + 1 and 1 - u <= -log u. Logarithms and the other 48 bits are only taken for the few ids
    whose upper bound reaches the best lower bound, so the result is that of the full rule.
    """
    if len(weights) == 1:
        return 0
    ids = survivors.ids
    upper = noise.upper_all(position, len(weights)) if ids is None else noise.upper(position, ids)
    gaps = (~upper).astype(np.float32)  # k
    lead = int((weights / (gaps + 1)).argmax())
    most = -np.log1p(-min((float(gaps[lead]) + 1) / 65536, BELOW_ONE))  # -log u of the lead is at most this
    close = np.flatnonzero(weights >= gaps * (weights[lead] / np.float32(most * 65536) * SLACK))
    if len(close) == 1:
        return int(close[0])
    noises = gumbels(upper[close], noise.lower(position, close if ids is None else ids[close]))
    return int(close[(survivors.z[close] + noises).argmax()])


def gumbels(upper: HalfWords, lower: NDArray[np.uint64]) -> NDArray[np.float64]:
    """-log(-log u) [m] of u's 64 bits. Through 1 - u, which keeps its precision where u is near 1."""
    complement = ((~upper).astype(np.float64) + (2.0**48 - 0.5 - lower) * 2.0**-48) / 65536
    return -np.log(-np.log1p(-np.minimum(complement, BELOW_ONE)))
