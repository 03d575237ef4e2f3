"""What a source's probabilities are worth, from its own running acceptance.

Every guess under a place that the text really came to is a test, whether it was verified or not: the token that came
there is known. Per bucket of like guesses, what came true over what was said corrects the next ones.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from medusakit.tree.topology import IntArray

Probs = NDArray[np.float64]

EDGES = np.array([0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.65, 0.8, 0.9, 0.96])
NUM_DEPTHS = 6  # the last one for all that are deeper
PRIOR = 2.0  # tokens that came as often as said, before anything was seen
WINDOW = 64.0  # tokens said in a bucket before its past counts half
CEILING = 0.985  # a child stays less probable than its parent, and a surprise stays possible


class Calibration:
    """num_kinds: kinds of evidence that are told apart (how long a text matched, which sources agree)."""

    def __init__(self, num_kinds: int) -> None:
        self._num_kinds = num_kinds
        self.reset()

    def reset(self) -> None:
        shape = self._num_kinds * NUM_DEPTHS * (len(EDGES) + 1)
        self._said, self._came = np.full(shape, PRIOR), np.full(shape, PRIOR)
        self._ratios = np.ones(shape)

    def buckets(self, kinds: int | IntArray, depths: IntArray, probs: Probs) -> IntArray:
        """[m] int64. depths from 1; probs are conditional on the path to the guess."""
        by_depth = kinds * NUM_DEPTHS + np.minimum(depths, NUM_DEPTHS) - 1
        found: IntArray = by_depth * (len(EDGES) + 1) + np.searchsorted(EDGES, probs)
        return found

    def corrected(self, buckets: IntArray, probs: Probs) -> Probs:
        return np.minimum(probs * self._ratios[buckets], CEILING)

    def learn(self, bucket: int, prob: float, came: bool) -> None:
        """One guess whose place was reached: what was said of it, uncorrected, and whether its token came."""
        self._said[bucket] += prob
        self._came[bucket] += came
        if self._said[bucket] > WINDOW:
            self._said[bucket] /= 2
            self._came[bucket] /= 2
        self._ratios[bucket] = self._came[bucket] / self._said[bucket]
