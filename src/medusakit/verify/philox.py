"""Philox4x32-10, the counter-based random generator of Salmon et al., SC'11 ("as easy as 1, 2, 3"), in NumPy.

A pure function of key and counter: no state, so a draw depends on where it is used and not on how many came before it.
That is what makes sampling through a tree give the same sequence as plain sampling.

A token's u has 64 random bits, made so that most tokens need only a share of one call (see `sample.draw`):

    upper 16   key (low half of the seed, choice), counter (position, token id // 8, high half of the seed, 0):
               half-word `token id % 8` of the result, low half of a word first
    lower 48   same key, counter (position, token id, high half of the seed, 1): the first word, then the lower half of
               the second
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from medusakit.tree.topology import IntArray

HalfWords = NDArray[np.uint16]

ROUNDS = 10
SHORT = 3  # rounds in which most words of our counter are still shared by all ids
MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
WEYL = (0x9E3779B9, 0xBB67AE85)
MASK = 0xFFFFFFFF
FEW = 8  # ids up to which Python integers beat the fixed cost of a hundred array operations


def philox4x32(counter: tuple[Any, ...], key: tuple[int, int], *, rounds: int = ROUNDS) -> tuple[Any, ...]:
    """The first `rounds` rounds on four counter words and two key words, each below 2**32.

    Words are Python ints or uint64 arrays [m]; an int is a word shared by all m, and stays cheap as long as it can.
    """
    c0, c1, c2, c3 = counter
    for number in range(rounds):
        k0, k1 = _round_key(key, number)
        p0, p1 = c0 * MULTIPLIERS[0], c2 * MULTIPLIERS[1]
        c0, c1, c2, c3 = (p1 >> 32) ^ (c1 ^ k0), p1 & MASK, (p0 >> 32) ^ (c3 ^ k1), p0 & MASK
    return c0, c1, c2, c3


def _round_key(key: tuple[int, int], number: int) -> tuple[int, int]:
    return (key[0] + number * WEYL[0]) & MASK, (key[1] + number * WEYL[1]) & MASK


class Noise:
    """The random bits of one sampled sequence. seed: 0 .. 2**64 - 1; choice: index among a request's n answers.

    Holds scratch memory for `upper_all` (fresh arrays of that size cost more in page faults than the arithmetic), so an
    instance is not shared between threads.
    """

    def __init__(self, seed: int, choice: int = 0) -> None:
        self._key = (seed & MASK, choice & MASK)
        self._seed_high = seed >> 32
        self._scratch = np.empty((7, 0), dtype=np.uint64)

    def upper(self, position: int, ids: IntArray) -> HalfWords:
        """[m] uint16: the upper 16 bits of u of each of `ids` at `position`."""
        if len(ids) <= FEW:
            return np.array([self._upper_one(position, token_id) for token_id in ids.tolist()], dtype=np.uint16)
        blocks = (ids >> 3).astype(np.uint64)
        words = np.choose((ids >> 1) & 3, philox4x32(self._counter(position, blocks, 0), self._key))
        return (words >> ((ids & 1) << 4).astype(np.uint64)).astype(np.uint16)

    def upper_all(self, position: int, vocab_size: int) -> HalfWords:
        """[vocab_size] uint16: `upper` of every id, eight per call of the generator."""
        num_blocks = (vocab_size + 7) // 8
        if self._scratch.shape[1] != num_blocks:
            self._scratch = np.empty((7, num_blocks), dtype=np.uint64)
            self._scratch[6] = np.arange(num_blocks)
        counter = self._counter(position, self._scratch[6], 0)
        c0, c1, c2, c3 = self._scratch[:4]
        c0[:], c1[:], c2[:], c3[:] = philox4x32(counter, self._key, rounds=SHORT)
        _finish_in_place(self._scratch, self._key)
        words = np.empty((num_blocks, 4), dtype="<u4")
        for lane in range(4):
            words[:, lane] = self._scratch[lane]
        return words.reshape(-1).view("<u2")[:vocab_size]

    def lower(self, position: int, ids: IntArray) -> NDArray[np.uint64]:
        """[m] uint64: the lower 48 bits of u of each of `ids`."""
        if len(ids) <= FEW:
            return np.array([self._lower(position, token_id) for token_id in ids.tolist()], dtype=np.uint64)
        return np.asarray(self._lower(position, ids.astype(np.uint64)))

    def _upper_one(self, position: int, token_id: int) -> int:
        words = philox4x32(self._counter(position, token_id >> 3, 0), self._key)
        return int(words[(token_id >> 1) & 3] >> (16 * (token_id & 1)) & 0xFFFF)

    def _lower(self, position: int, ids: Any) -> Any:
        first, second, _, _ = philox4x32(self._counter(position, ids, 1), self._key)
        return first << 16 | second & 0xFFFF

    def _counter(self, position: int, word: Any, level: int) -> tuple[Any, ...]:
        return position & MASK, word, self._seed_high, level


def _finish_in_place(scratch: NDArray[np.uint64], key: tuple[int, int]) -> None:
    """Rounds SHORT .. ROUNDS of `philox4x32` on the words scratch[:4], with scratch[4:6] as work space."""
    c0, c1, c2, c3, p0, p1 = scratch[:6]
    for number in range(SHORT, ROUNDS):
        k0, k1 = _round_key(key, number)
        np.multiply(c0, MULTIPLIERS[0], out=p0)
        np.multiply(c2, MULTIPLIERS[1], out=p1)
        for even, odd, product, word in ((c0, c1, p1, k0), (c2, c3, p0, k1)):
            np.right_shift(product, 32, out=even)
            np.bitwise_xor(even, odd, out=even)
            np.bitwise_xor(even, word, out=even)
            np.bitwise_and(product, MASK, out=odd)
