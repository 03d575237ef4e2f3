"""The draw is the argmax of the rule as written, and its law is p."""

import numpy as np
import pytest

from fakes import scores
from medusakit.settings import SamplingParams
from medusakit.verify.philox import Noise
from medusakit.verify.processors import Filter, Survivors
from medusakit.verify.rules import make_rule
from medusakit.verify.sample import draw, gumbels


def noisy(survivors, noise, position):
    """z - log(-log u) of all survivors: the rule as it is written."""
    ids = np.arange(len(survivors.z)) if survivors.ids is None else survivors.ids
    return survivors.z + gumbels(noise.upper(position, ids), noise.lower(position, ids))


@pytest.mark.parametrize("size", [2, 5, 9, 300, 20_000])
@pytest.mark.parametrize("spread", [0.0, 1.0, 6.0])
def test_the_draw_is_the_argmax_of_the_whole_rule(size, spread):
    random, noise = np.random.default_rng(size), Noise(seed=size, choice=1)
    for position in range(20 if size > 1000 else 100):
        logits = (random.standard_normal(size) * spread).astype(np.float32)
        for filter_ in (Filter(), Filter(0.7, top_p=0.8)):
            survivors = filter_.apply(logits)
            index = draw(survivors, np.exp(survivors.z), noise, position)
            assert index == noisy(survivors, noise, position).argmax()


def test_equal_upper_bits_are_decided_by_the_lower_ones():
    class Twins(Noise):
        """Two ids whose upper 16 bits agree, so that only the lower 48 tell them apart."""

        def upper_all(self, position, vocab_size):
            return np.full(vocab_size, 40_000, dtype=np.uint16)

    noise = Twins(seed=3)
    survivors = Survivors(None, np.zeros(2, dtype=np.float32))
    picks = {draw(survivors, np.ones(2, dtype=np.float32), noise, position) for position in range(40)}
    assert picks == {0, 1}
    for position in range(40):
        lower = noise.lower(position, np.arange(2))
        assert draw(survivors, np.ones(2, dtype=np.float32), noise, position) == lower.argmax()


@pytest.mark.parametrize("word", [0, 2**16 - 1])
def test_noise_at_both_ends_of_its_range_is_finite(word):
    class Extreme(Noise):
        def upper(self, position, ids):
            return np.full(len(ids), word, dtype=np.uint16)

        def upper_all(self, position, vocab_size):
            return np.full(vocab_size, word, dtype=np.uint16)

        def lower(self, position, ids):
            return np.full(len(ids), 2**48 - 1 if word else 0, dtype=np.uint64)

    survivors = Survivors(None, np.array([0, -1], dtype=np.float32))
    assert np.isfinite(noisy(survivors, Extreme(0), 0)).all()
    assert draw(survivors, np.exp(survivors.z), Extreme(0), 0) == 0


def test_draws_have_the_law_p():
    p = np.array([0.5, 0.2, 0.15, 0.1, 0.04, 0.01])
    survivors = Filter().apply(np.log(p).astype(np.float32))
    weights, noise, number = np.exp(survivors.z), Noise(11), 5000
    counts = np.bincount([draw(survivors, weights, noise, position) for position in range(number)], minlength=6)
    assert ((counts - number * p) ** 2 / (number * p)).sum() < 35  # 5 degrees of freedom: p about 1.5e-6


def test_log_probability_is_that_of_the_processed_distribution():
    logits = scores([np.log([0.5, 0.25, 0.15, 0.1])])
    rule = make_rule(SamplingParams(temperature=1.0, top_k=2), seed=1, vocab_size=4)
    for position in range(1, 30):
        verdict = rule.decide(logits, 0, [], [0] * position)
        assert verdict.logprob == pytest.approx(np.log([2 / 3, 1 / 3][verdict.pick]), abs=1e-6)
