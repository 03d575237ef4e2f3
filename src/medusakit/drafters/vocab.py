"""The draft vocabulary: the rows of the LM head that a drafter may say. Verification always uses all of them."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from medusakit.errors import UsageError
from medusakit.tree.topology import FloatArray, IntArray


def choose_draft_ids(counts: FloatArray, size: int, always: Iterable[int] = ()) -> IntArray:
    """`size` token ids in rising order: all of `always`, then the most frequent ones.

    counts  [V], how often each id occurs in the model's own answers. Ties go to the lowest id: byte-pair vocabularies
            number their merges by frequency.
    always  ids that must be there whatever their count: special, digit, white-space and byte tokens
    size    0 means the full vocabulary
    """
    if size == 0 or size >= len(counts):
        return np.arange(len(counts), dtype=np.int64)
    kept = np.unique(np.fromiter(always, np.int64))
    if len(kept) > size:
        raise UsageError(
            f"a draft vocabulary of {size} cannot hold the {len(kept)} tokens that must be in it",
            hint=f"draft_vocab = {2 * len(kept)} in [heads] of the recipe",
        )
    rest = np.argsort(-counts, kind="stable")
    rest = rest[~np.isin(rest, kept)][: size - len(kept)]
    return np.sort(np.concatenate([kept, rest]))


def draft_positions(draft_ids: IntArray, vocab_size: int) -> IntArray:
    """[V] int64: position of each token id in the draft vocabulary, -1 where it is not part of it."""
    positions = np.full(vocab_size, -1, np.int64)
    positions[draft_ids] = np.arange(len(draft_ids))
    return positions


def coverage(counts: FloatArray, draft_ids: IntArray) -> float:
    """Share of the counted tokens that the draft vocabulary can say."""
    return float(counts[draft_ids].sum() / max(float(counts.sum()), 1.0))
