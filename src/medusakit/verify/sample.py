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
from medusakit.tree.topology import FloatArray, IntArray
from medusakit.verify.base import Verdict
from medusakit.verify.greedy import carrying
from medusakit.verify.philox import MASK, Noise, Words
from medusakit.verify.processors import Adjustments, Filter, Survivors

TINY = np.float32(2.0**-34)
SLACK = np.float32(1 - 1e-4)  # far above the rounding of the float32 bounds, far below what would add candidates


@dataclass(frozen=True, slots=True)
class SampleRule:
    """A child is accepted if it carries the draw; else the draw is emitted and the path ends."""

    noise: Noise
    filter: Filter
    adjustments: Adjustments | None = None
    name: str = "sample"
    lossless: bool = True

    def decide(self, scores: Scores, node: int, children: Sequence[tuple[int, int]], history: Sequence[int]) -> Verdict:
        logits = scores.logits(node)
        if self.adjustments is not None:
            logits = self.adjustments.apply(logits, history)
        survivors = self.filter.apply(logits)
        weights = np.exp(survivors.z)
        index = draw(survivors, weights, self.noise, len(history))
        pick = survivors.token(index)
        logprob = float(survivors.z[index]) - float(np.log(weights.sum()))
        return Verdict(carrying(children, pick), pick, logprob=logprob)


def draw(survivors: Survivors, weights: FloatArray, noise: Noise, position: int) -> int:
    """Index among the survivors of the draw at `position`; weights [m] = exp(z).

    log p - log(-log u) is largest where p / -log u is, and -log u >= 1 - u, so p / (1 - u), cheap in float32, bounds it
    from above. Logarithms and the lower half of u are taken only for the few ids whose bound reaches the best.
    """
    if len(weights) == 1:
        return 0
    ids = survivors.ids
    words = noise.all_words(position, len(weights)) if ids is None else noise.words(position, ids)
    bounds = weights / ((MASK - words).astype(np.float32) + TINY)  # in units of 2**32
    lead = int(bounds.argmax())
    most = -np.log1p(-min((MASK - int(words[lead]) + 1) * 2.0**-32, 1 - 2.0**-53))  # -log u of the lead is at most this
    close = np.flatnonzero(bounds >= weights[lead] / np.float32(most * 2.0**32) * SLACK)
    if len(close) == 1:
        return lead
    gumbels = _gumbels(words[close], noise, position, close if ids is None else ids[close])
    return int(close[(survivors.z[close] + gumbels).argmax()])


def _gumbels(words: Words, noise: Noise, position: int, ids: IntArray) -> NDArray[np.float64]:
    """-log(-log u) [m], with 64 random bits in u. Through 1 - u, which keeps its precision where u is near 1."""
    low = noise.words(position, ids, level=1).astype(np.float64)
    complement = ((MASK - words).astype(np.float64) + (2.0**32 - 0.5 - low) * 2.0**-32) * 2.0**-32
    return -np.log(-np.log1p(-np.minimum(complement, 1 - 2.0**-53)))
