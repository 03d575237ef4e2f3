"""How close a call was: the distance between two tokens in what a rule compares, for judging a first difference.

Two runs that differ only by rounding may part where two tokens are nearly equal. ALGORITHMS ("Equality, precisely")
accepts that only under a tolerance, in these units: logits (greedy), log p + noise (sampling), cumulative mass at a
top-p edge.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from medusakit.tree.topology import FloatArray
from medusakit.verify.base import Acceptance
from medusakit.verify.greedy import GreedyRule
from medusakit.verify.sample import SampleRule, gumbels


def score_gap(rule: Acceptance, logits: FloatArray, history: Sequence[int], left: int, right: int) -> float:
    """Distance of two token ids in the rule's own comparison after `history`; infinity where no tie is possible.

    logits [V] float32 are the scores after `history`. Raises TypeError for a rule that is not exact.
    """
    if not isinstance(rule, GreedyRule | SampleRule):
        raise TypeError(f"the rule {rule.name} compares no scores")
    adjusted = logits if rule.adjustments is None else rule.adjustments.apply(logits, history)
    if isinstance(rule, GreedyRule):
        return abs(float(adjusted[left]) - float(adjusted[right]))
    survivors = rule.filter.apply(adjusted)
    scores = [_drawn_score(rule, survivors.index(token), survivors.z, len(history), token) for token in (left, right)]
    if None not in scores:
        return abs(float(scores[0] or 0.0) - float(scores[1] or 0.0))
    outside = left if scores[0] is None else right
    return _edge_gap(rule, adjusted, outside)


def _drawn_score(rule: SampleRule, index: int | None, z: FloatArray, position: int, token: int) -> float | None:
    if index is None:
        return None
    ids = np.array([token], dtype=np.int64)
    return float(z[index]) + float(gumbels(rule.noise.upper(position, ids), rule.noise.lower(position, ids))[0])


def _edge_gap(rule: SampleRule, adjusted: FloatArray, outside: int) -> float:
    """How far a filtered token is from surviving: mass past the top-p edge."""
    if rule.filter.top_p >= 1:
        return float("inf")
    z = (adjusted - adjusted.max()) / np.float32(rule.filter.temperature)
    p = np.exp(z, dtype=np.float64)
    before = float(p[z > z[outside]].sum() / p.sum())
    return max(0.0, before - rule.filter.top_p)
