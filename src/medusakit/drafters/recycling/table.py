"""Per token, the successors that the model last ranked highest after it (Token Recycling, 2408.08696)."""

from __future__ import annotations

import numpy as np

from medusakit.drafters.trie import Guess
from medusakit.tree.topology import FloatArray, IntArray

NUM_SUCCESSORS = 8

# How often a stored successor comes next: a share that its rank alone has, and a share of the probability it had where
# it was stored (among the stored ones). Least squares over 4k places of greedy answers of SmolLM2-135M-Instruct.
RANK_SHARES = (0.139, 0.064, 0.032, 0.021, 0.0145, 0.0125, 0.009, 0.008)
PROBABILITY_SHARE = 0.3


class SuccessorTable:
    """8 successors a token with their chances, as arrays [V, 8]: 64 bytes a token of the vocabulary, whatever is read.

    Every row of a batch reads and writes the same table, as in the paper: it says what the model tends to, and what was
    learnt in one answer drafts the next from its first step. A row's output cannot depend on it, only its speed.
    """

    def __init__(self, vocab_size: int) -> None:
        size = min(NUM_SUCCESSORS, vocab_size)
        self._ids = np.zeros((vocab_size, size), np.int32)
        self._chances = np.zeros((vocab_size, size), np.float32)

    def store(self, token: int, logits: FloatArray) -> None:
        """The scores [V] of the token after `token`; what was stored for it before is gone."""
        self.put(token, *top_ids(logits, self.num_successors))

    @property
    def num_successors(self) -> int:
        """Of a token, at most."""
        return self._ids.shape[1]

    def put(self, token: int, ids: IntArray, scores: FloatArray) -> None:
        """The same of the `num_successors` best ids, best first, and their scores."""
        weights = np.exp(scores - scores[0])
        self._ids[token] = ids
        self._chances[token] = RANK_SHARES[: len(ids)] + PROBABILITY_SHARE * weights / weights.sum()

    def guesses(self, token: int, limit: int) -> list[Guess[int]]:
        """What may follow the token, the most probable first; nothing if it was never seen."""
        chances = self._chances[token].tolist()
        if not chances[0]:
            return []
        pairs = zip(self._ids[token].tolist(), chances, strict=True)
        return [Guess(after, chance, after) for after, chance in pairs][:limit]


def top_ids(logits: FloatArray, count: int) -> tuple[IntArray, FloatArray]:
    """The `count` best ids, lowest first on ties, and their scores. So many argmaxes take a tenth of a sort's time."""
    left = logits.copy()
    ids, scores = np.empty(count, np.int64), np.empty(count, np.float32)
    for place in range(count):
        best = int(left.argmax())
        ids[place], scores[place] = best, left[best]
        left[best] = -np.inf
    return ids, scores
