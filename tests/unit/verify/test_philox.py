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


def test_upper_bits_of_some_ids_are_those_of_all():
    noise = Noise(seed=2**40 + 5, choice=2)
    everything = noise.upper_all(77, 1003)
    assert everything.shape == (1003,)
    for count in (1, FEW, FEW + 1, 200):
        ids = np.sort(np.random.default_rng(count).choice(1003, count, replace=False))
        assert np.array_equal(noise.upper(77, ids), everything[ids])
        assert noise.lower(77, ids).tolist() == [noise.lower(77, ids[i : i + 1])[0] for i in range(count)]


def test_bits_are_the_documented_words():
    seed, choice, position, token_id = 2**40 + 5, 2, 77, 8 * 3 + 5
    key = (5, choice)
    shared = philox4x32((position, 3, 2**8, 0), key)
    own = philox4x32((position, token_id, 2**8, 1), key)
    noise = Noise(seed, choice)
    assert noise.upper(position, np.array([token_id])).tolist() == [shared[2] >> 16]
    assert noise.lower(position, np.array([token_id])).tolist() == [own[0] * 2**16 + own[1] % 2**16]


def test_every_part_of_key_and_counter_matters():
    base = Noise(1, 0).upper_all(5, 4096)
    others = [Noise(2, 0), Noise(1 + 2**32, 0), Noise(1, 1)]
    assert all((noise.upper_all(5, 4096) != base).mean() > 0.99 for noise in others)
    assert (Noise(1, 0).upper_all(6, 4096) != base).mean() > 0.99


def chi_square(uniforms, bins):
    counts = np.histogram(uniforms, bins=bins, range=(0, 1))[0]
    expected = len(uniforms) / bins
    return ((counts - expected) ** 2 / expected).sum()


def test_bits_are_uniform():
    upper = np.concatenate([Noise(3).upper_all(position, 4096) for position in range(25)]) / 2.0**16
    lower = np.concatenate([Noise(3).lower(position, np.arange(100)) for position in range(25)]) / 2.0**48
    assert chi_square(upper, 64) < 120  # 63 degrees of freedom: p about 2e-5
    assert chi_square(lower, 64) < 120
    assert abs(np.corrcoef(upper[:-1], upper[1:])[0, 1]) < 0.02
