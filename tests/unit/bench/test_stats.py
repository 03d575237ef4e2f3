from __future__ import annotations

import numpy as np
import pytest

from medusakit.bench.stats import is_looping, median, paired_ratio

PROMPTS = [(100.0, 2.0, 100.0, 3.0), (50.0, 1.0, 40.0, 1.0), (10.0, 0.5, 30.0, 1.0)]


def test_the_ratio_is_of_sums() -> None:
    """(160 / 3.5) / (170 / 5), not the mean of 1.5, 1.25 and 0.67."""
    assert paired_ratio(PROMPTS).ratio == pytest.approx((160 / 3.5) / (170 / 5))


def test_seeded() -> None:
    many = PROMPTS * 5
    assert paired_ratio(many, seed=1) == paired_ratio(many, seed=1)
    assert paired_ratio(many, seed=1) != paired_ratio(many, seed=2)


def test_against_an_explicit_bootstrap() -> None:
    rng = np.random.default_rng(5)
    prompts = [tuple(row) for row in rng.uniform(1, 3, (40, 4))]
    found = paired_ratio(prompts, resamples=4000)
    draws = []
    for _ in range(4000):
        a_tokens, a_seconds, b_tokens, b_seconds = np.sum([prompts[i] for i in rng.integers(0, 40, 40)], axis=0)
        draws.append((a_tokens / a_seconds) / (b_tokens / b_seconds))
    low, high = np.percentile(draws, [2.5, 97.5])
    assert (found.low, found.high) == (pytest.approx(low, abs=0.01), pytest.approx(high, abs=0.01))
    assert found.low < found.ratio < found.high


def test_the_interval_covers() -> None:
    """Of 100 samples with the true ratio 1.5, the 95 % interval misses few (a miscounted one misses far more)."""
    rng = np.random.default_rng(0)
    missed = 0
    for trial in range(100):
        seconds = rng.gamma(4.0, 1.0, 60)
        noise = rng.uniform(0.7, 1.3, 60)
        prompts = [(60.0, s, 60.0, 1.5 * s * n) for s, n in zip(seconds, noise, strict=True)]
        found = paired_ratio(prompts, seed=trial, resamples=400)
        missed += not found.low <= 1.5 <= found.high
    assert missed <= 13


def test_pairing_cancels_what_modes_share() -> None:
    """Prompts differ tenfold in speed, but mode a is twice as fast on each: no uncertainty is left."""
    prompts = [(100.0, s, 100.0, 2 * s) for s in (1.0, 3.0, 10.0)]
    found = paired_ratio(prompts)
    assert (found.ratio, found.low, found.high) == pytest.approx((2.0, 2.0, 2.0))


def test_one_prompt_has_no_spread() -> None:
    found = paired_ratio(PROMPTS[:1])
    assert (found.ratio, found.low, found.high) == pytest.approx((1.5, 1.5, 1.5))


def test_nothing_decoded() -> None:
    assert paired_ratio([(0.0, 0.0, 0.0, 0.0)]).ratio == 0.0
    mixed = paired_ratio([(0.0, 0.0, 0.0, 0.0), (10.0, 1.0, 10.0, 2.0)])
    assert (mixed.ratio, mixed.low, mixed.high) == (2.0, 2.0, 2.0)
    with pytest.raises(ValueError, match="no prompts"):
        paired_ratio([])


def test_median() -> None:
    assert (median([3.0, 1.0, 2.0]), median([4.0, 1.0, 2.0, 3.0])) == (2.0, 2.5)
    with pytest.raises(ValueError, match="no values"):
        median([])


@pytest.mark.parametrize(
    ("ids", "loops"),
    [
        ([7] * 24, True),
        ([7] * 23, False),
        ([*range(100), *[1, 2, 3, 4] * 6], True),
        ([*range(100), *[1, 2, 3, 4] * 5], False),
        ([*range(50), *list(range(200, 240)) * 3], True),
        ([*range(50), *list(range(200, 240)) * 2], False),
        ([*[1, 2, 3] * 20, 99], False),  # got out, or ended with its end-of-sequence token
        ([5, *[1, 2, 3] * 20, 1, 2], True),  # cut in the middle of a round
        (list(range(256)), False),
        ([], False),
    ],
)
def test_loops(ids: list[int], loops: bool) -> None:
    assert is_looping(ids) == loops
