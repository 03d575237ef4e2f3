"""Figures of a report: ratios of sums with bootstrap intervals over prompts, medians, loops. Pure functions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

RESAMPLES = 2000
LOOP_REPEATS = 3
LOOP_TOKENS = 24


@dataclass(frozen=True, slots=True)
class Ratio:
    """A ratio of sums and its 95 % interval."""

    ratio: float
    low: float
    high: float


def paired_ratio(
    prompts: Sequence[tuple[float, float, float, float]], *, seed: int = 0, resamples: int = RESAMPLES
) -> Ratio:
    """Speed of mode a over speed of mode b, from (a's tokens, a's seconds, b's tokens, b's seconds) of each prompt.

    ratio = (sum a's tokens / sum a's seconds) / (sum b's tokens / sum b's seconds). Percentile bootstrap: whole prompts
    are drawn with replacement, the same ones for both modes, so that what makes a prompt fast in both cancels out.
    Where nothing was decoded at all the ratio is 0; draws in which that happens are left out of the interval.
    Raises ValueError for no prompts.
    """
    if not prompts:
        raise ValueError("a ratio over no prompts")
    values = np.asarray(prompts, dtype=np.float64)
    draws = np.random.default_rng(seed).multinomial(len(values), np.full(len(values), 1 / len(values)), resamples)
    ratios = _ratios(draws @ values)
    ratio = float(_ratios(values.sum(axis=0, keepdims=True))[0])
    if not np.isfinite(ratio):
        return Ratio(0.0, 0.0, 0.0)
    low, high = np.percentile(ratios[np.isfinite(ratios)], [2.5, 97.5])
    return Ratio(ratio, float(low), float(high))


def _ratios(sums: NDArray[np.float64]) -> NDArray[np.float64]:
    """[n, 4] sums to [n] ratios; nan where one of the divisors is zero."""
    a_tokens, a_seconds, b_tokens, b_seconds = sums.T
    below = a_seconds * b_tokens
    ratios = np.full(len(sums), np.nan)
    np.divide(a_tokens * b_seconds, below, out=ratios, where=below > 0)
    return ratios


def median(values: Sequence[float]) -> float:
    """The middle value, or the mean of the two in the middle. Raises ValueError for none."""
    if not values:
        raise ValueError("the median of no values")
    return float(np.median(values))


def is_looping(token_ids: Sequence[int], *, repeats: int = LOOP_REPEATS, min_tokens: int = LOOP_TOKENS) -> bool:
    """True if the answer ends in one passage said over and over: at least `repeats` times, in `min_tokens` or more.

    Small models loop under greedy decoding, and loops are easy to draft: a report says how much of its speed is theirs.
    An answer that ends with its end-of-sequence token found its way out and does not count.
    """
    longest = len(token_ids) // repeats
    return any(_tail(token_ids, period) >= max(repeats * period, min_tokens) for period in range(1, longest + 1))


def _tail(token_ids: Sequence[int], period: int) -> int:
    """Length of the longest end of the answer that repeats with the given period."""
    at = len(token_ids) - 1
    while at >= period and token_ids[at] == token_ids[at - period]:
        at -= 1
    return len(token_ids) - 1 - at + period
