"""From the scores of a SentencePiece vocabulary to the merge list that the `tokenizers` library wants.

A SentencePiece BPE model has no merge list: it joins the two neighbours whose joint piece has the best score. Listing,
for every piece, each pair that makes it, best score first, gives the same result, and the same order as the
`tokenizer.json` that models are published with (tested on gemma 3: 514,906 merges, in order).
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from itertools import chain, groupby

Merge = tuple[str, str]


def merges_from_scores(pieces: Sequence[str], scores: Sequence[float], targets: Sequence[int]) -> list[Merge]:
    """Merges that make the pieces `targets`, best score first; among equals the longer left part, then right part."""
    known = frozenset(pieces)
    by_score = sorted(targets, key=lambda index: -scores[index])
    merges: list[Merge] = []
    for _, group in groupby(by_score, key=scores.__getitem__):
        first, *others = (_pairs(pieces[index], known) for index in group)
        if others:  # of one piece the pairs come ordered, and nearly every score belongs to one piece
            first = sorted(chain(first, *others), key=lambda pair: (-len(pair[0]), -len(pair[1])))
        merges += first
    return merges


def _pairs(piece: str, known: Set[str]) -> list[Merge]:
    """Every way to make the piece of two known ones, the longest left part first."""
    cuts = range(len(piece) - 1, 0, -1)
    return [(piece[:cut], piece[cut:]) for cut in cuts if piece[:cut] in known and piece[cut:] in known]
