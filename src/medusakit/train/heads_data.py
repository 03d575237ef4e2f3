"""Batches of whole answers for drafters' training, made from distilled samples without the backbone.

Row j of an answer (see train/shards.py) has the root gen[j]; the label of head k (0-based) is gen[j + 1 + k], and its
row exists only while j + 1 + k < G: a label never crosses the end of its answer.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from medusakit.train.shards import Sample
from medusakit.tree.topology import FloatArray, IntArray

_POOL = 128  # answers sorted by length together: little padding, and still random batches
_MIN_ROWS = 2  # an answer of one token has nothing to draft


@dataclass(frozen=True, slots=True)
class Batch:
    """B answers padded to T rows.

    hidden   [B, T, d] float16
    tokens   [B, T + 1] int64: last prompt id, then the answer, so row j stands between tokens[j] and its root
             tokens[j + 1]; padded with 0
    lengths  [B] int64, rows of each answer (G)
    """

    hidden: NDArray[np.float16]
    tokens: IntArray
    lengths: IntArray

    @property
    def num_rows(self) -> int:
        return int(self.lengths.sum())

    def places(self) -> tuple[IntArray, IntArray]:
        """(answer [N], row [N]) of every row that has a label at depth 1."""
        columns = np.arange(self.hidden.shape[1])[None, :]
        answer, row = np.nonzero(columns + 1 < self.lengths[:, None])
        return answer, row

    def labels(self, places: tuple[IntArray, IntArray], head: int) -> tuple[IntArray, IntArray]:
        """For each place: the row whose hidden state predicts the label, and the label; -1 past the answer's end."""
        answer, row = places
        target = row + 1 + head
        inside = target < self.lengths[answer]
        label = self.tokens[answer, np.minimum(target, self.hidden.shape[1] - 1) + 1]
        return np.where(inside, target, -1), np.where(inside, label, -1)


def make_batch(samples: Sequence[Sample]) -> Batch:
    longest, width = max(sample.num_generated for sample in samples), samples[0].hidden.shape[1]
    hidden = np.zeros((len(samples), longest, width), np.float16)
    tokens = np.zeros((len(samples), longest + 1), np.int64)
    for row, sample in enumerate(samples):
        hidden[row, : sample.num_generated] = sample.hidden
        tokens[row, : sample.num_generated + 1] = sample.ids[sample.prompt_len - 1 :]
    return Batch(hidden, tokens, np.array([sample.num_generated for sample in samples], np.int64))


def epoch_batches(lengths: Sequence[int], rows: int, rng: np.random.Generator) -> list[list[int]]:
    """Indices of answers, once each, in random order, grouped so that a batch has about `rows` rows."""
    order = [index for index in rng.permutation(len(lengths)).tolist() if lengths[index] >= _MIN_ROWS]
    batches: list[list[int]] = []
    for start in range(0, len(order), _POOL):
        pool = sorted(order[start : start + _POOL], key=lambda index: lengths[index])
        batches.extend(_filled(pool, lengths, rows))
    return [batches[index] for index in rng.permutation(len(batches)).tolist()]


def _filled(pool: Sequence[int], lengths: Sequence[int], rows: int) -> Iterable[list[int]]:
    batch: list[int] = []
    for index in pool:
        batch.append(index)
        if sum(lengths[member] for member in batch) >= rows:
            yield batch
            batch = []
    if batch:
        yield batch


def count_tokens(samples: Iterable[Sample], vocab_size: int) -> FloatArray:
    """[V] float32: how often each id occurs in the answers."""
    counts = np.zeros(vocab_size, np.int64)
    for sample in samples:
        counts += np.bincount(sample.gen, minlength=vocab_size)
    return counts.astype(np.float32)
