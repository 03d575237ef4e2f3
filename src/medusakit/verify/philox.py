"""Philox4x32-10, the counter-based random generator of Salmon et al., SC'11 ("as easy as 1, 2, 3"), in NumPy.

A pure function of key and counter: no state, so a draw depends on where it is used and not on how many came before it.
That is what makes sampling through a tree give the same sequence as plain sampling.

The noise of sampling uses it so: key (low half of the seed, choice index), counter (absolute position, token id // 4,
high half of the seed, level); of the four words of a result, word `token id % 4` belongs to the token, so that one call
serves four tokens. Level 0 gives the upper 32 bits of a 64-bit uniform, level 1 the lower 32, which few tokens need.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from medusakit.tree.topology import IntArray

Words = NDArray[np.uint64]

ROUNDS = 10
MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
WEYL = (0x9E3779B9, 0xBB67AE85)
MASK = 0xFFFFFFFF
FEW = 8  # ids up to which Python integers beat the fixed cost of a hundred array operations


def philox4x32(counter: tuple[Any, ...], key: tuple[int, int]) -> tuple[Any, ...]:
    """Ten rounds on four counter words and two key words, each below 2**32.

    Words are Python ints or uint64 arrays [m]; an int is a word shared by all m, and stays cheap as long as it can.
    """
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(ROUNDS):
        p0, p1 = c0 * MULTIPLIERS[0], c2 * MULTIPLIERS[1]
        c0, c1, c2, c3 = (p1 >> 32) ^ (c1 ^ k0), p1 & MASK, (p0 >> 32) ^ (c3 ^ k1), p0 & MASK
        k0, k1 = (k0 + WEYL[0]) & MASK, (k1 + WEYL[1]) & MASK
    return c0, c1, c2, c3


@dataclass(frozen=True, slots=True)
class Noise:
    """The random words of one sampled sequence. seed: 0 .. 2**64 - 1; choice: index among a request's n answers."""

    seed: int
    choice: int = 0

    def words(self, position: int, ids: IntArray, *, level: int = 0) -> Words:
        """[m] uint64 below 2**32: the word of each of `ids` at `position`."""
        if len(ids) <= FEW:
            return np.array([self._blocks(position, i >> 2, level)[i & 3] for i in ids.tolist()], dtype=np.uint64)
        return np.choose(ids & 3, self._blocks(position, (ids >> 2).astype(np.uint64), level))

    def all_words(self, position: int, vocab_size: int) -> Words:
        """[vocab_size] uint64: `words` of every id at level 0, four per call of the generator."""
        blocks = self._blocks(position, np.arange((vocab_size + 3) // 4, dtype=np.uint64), 0)
        return np.stack(blocks, axis=1).reshape(-1)[:vocab_size]

    def _blocks(self, position: int, blocks: Any, level: int) -> tuple[Any, ...]:
        return philox4x32((position & MASK, blocks, self.seed >> 32, level), (self.seed & MASK, self.choice & MASK))
