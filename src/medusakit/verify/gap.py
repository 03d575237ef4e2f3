"""How close a call was: the distance between two tokens in what a rule compares, for judging a first difference.

Two runs that differ only by rounding may part where two tokens are nearly equal, or where one of them is nearly in or
nearly out of a filter. That is accepted only under a tolerance (docs/concepts.md), in these units: logits (greedy),
log p + noise (sampling), log p at an edge of a filter, or cumulative mass at top-p's.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from medusakit.tree.topology import FloatArray
from medusakit.verify.base import Acceptance
from medusakit.verify.greedy import GreedyRule
from medusakit.verify.processors import Filter, adjusted
from medusakit.verify.sample import SampleRule, gumbels


def score_gap(rule: Acceptance, logits: FloatArray, history: Sequence[int], left: int, right: int) -> float:
    """Distance of two token ids in the rule's own comparison after `history`; infinity where no tie is possible.

    logits [V] float32 are the scores after `history`. Raises TypeError for a rule that is not exact.
    """
    if not isinstance(rule, GreedyRule | SampleRule):
        raise TypeError(f"the rule {rule.name} compares no scores")
    logits = adjusted(logits, rule.adjustments, history)
    if isinstance(rule, GreedyRule):
        return abs(float(logits[left]) - float(logits[right]))
    z = (logits - logits.max()) * np.float32(1 / rule.filter.temperature)
    ids = np.arange(len(z))
    scores = z + gumbels(rule.noise.upper(len(history), ids), rule.noise.lower(len(history), ids))
    survivors = rule.filter.apply(logits).ids
    kept = np.isin(ids, ids if survivors is None else survivors)
    return max(_draw_gap(rule.filter, z, scores, kept, token) for token in (left, right))


def _draw_gap(filter: Filter, z: FloatArray, scores: NDArray[np.float64], kept: NDArray[np.bool_], token: int) -> float:
    """How much has to change for the token to be drawn, 0 if it is: it has to survive, and every survivor with a better
    score has to fall behind or out.

    z [V]: scaled logits less their maximum; scores [V]: log p + noise; kept [V]: who survives
    """
    ahead = scores - scores[token]
    better = np.flatnonzero(kept & (ahead > 0)).tolist()
    obstacles = [min(float(ahead[rival]), margin(filter, z, rival)) for rival in better]
    return max(0.0, 0.0 if kept[token] else -margin(filter, z, token), *obstacles)


def margin(filter: Filter, z: FloatArray, token: int) -> float:
    """How far the token is inside the nearest edge of the filter; negative: how far outside of the farthest one.

    z [V]: scaled logits less their maximum. In log p; at top-p's edge in mass, where that is less. Infinite if nothing
    is filtered.
    """
    if filter.top_p >= 1 and filter.min_p == 0 and not 0 < filter.top_k < len(z):
        return float("inf")
    own, rivals = float(z[token]), np.sort(np.delete(z, token))[::-1].astype(np.float64)
    edges = []
    if filter.min_p > 0:
        edges.append(own - float(rivals[0]) - math.log(filter.min_p))
    if 0 < filter.top_k < len(z):
        edges.append(own - float(rivals[filter.top_k - 1]))
        rivals = rivals[: filter.top_k - 1]
    if filter.top_p < 1 and len(rivals):
        edges.append(_top_p_margin(filter.top_p, own, rivals))
    return min(edges, default=float("inf"))


def _top_p_margin(top_p: float, own: float, rivals: NDArray[np.float64]) -> float:
    """rivals: descending. A token survives before the rival that completes the mass top_p among them."""
    weights = np.exp(rivals)
    masses = np.cumsum(weights) / (weights.sum() + math.exp(own))
    mass = top_p - float((masses * (rivals > own)).max())
    place = int(np.searchsorted(masses, top_p))
    swap = own - float(rivals[place]) if place < len(rivals) else float("inf")
    return min(mass, swap, key=abs)
