"""Philox4x32-10 against the known-answer vectors that Random123 publishes (kat_vectors), and the noise built on it."""

import numpy as np
import pytest

from medusakit.verify.philox import FEW, Noise, philox4x32

ONES = 0xFFFFFFFF
PI = (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344)
KNOWN = [
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((ONES,) * 4, (ONES, ONES), (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    (PI, (0xA4093822, 0x299F31D0), (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1)),
]


@pytest.mark.parametrize(("counter", "key", "words"), KNOWN)
def test_known_answers(counter, key, words):
    assert philox4x32(counter, key) == words


def test_arrays_equal_integers():
    counters = np.random.default_rng(0).integers(0, 2**32, (4, 50), dtype=np.uint64)
    together = np.stack(philox4x32(tuple(counters), (3, 9)))
    alone = np.array([philox4x32(tuple(map(int, column)), (3, 9)) for column in counters.T], dtype=np.uint64).T
    assert np.array_equal(together, alone)


def test_words_of_some_ids_are_those_of_all():
    noise = Noise(seed=2**40 + 5, choice=2)
    everything = noise.all_words(77, 1003)
    for count in (1, FEW, FEW + 1, 200):
        ids = np.sort(np.random.default_rng(count).choice(1003, count, replace=False))
        assert np.array_equal(noise.words(77, ids), everything[ids])


def test_every_part_of_key_and_counter_matters():
    base = Noise(1, 0).all_words(5, 64)
    others = [Noise(2, 0), Noise(1 + 2**32, 0), Noise(1, 1)]
    assert all((noise.all_words(5, 64) != base).all() for noise in others)
    assert (Noise(1, 0).all_words(6, 64) != base).all()
    assert (Noise(1, 0).words(5, np.arange(64), level=1) != base).all()
    assert len(set(base.tolist())) == 64


def test_words_are_uniform():
    words = np.concatenate([Noise(3).all_words(position, 4096) for position in range(25)]) / 2.0**32
    counts = np.histogram(words, bins=64, range=(0, 1))[0]
    expected = len(words) / 64
    assert ((counts - expected) ** 2 / expected).sum() < 120  # 63 degrees of freedom: p about 2e-5
