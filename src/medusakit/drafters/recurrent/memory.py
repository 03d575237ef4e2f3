"""What a drafter that looks back remembers of each row: the hidden states and tokens that were committed.

A row's memory begins where it is first drafted for, which is the last prompt position if decoding speculates from its
first step: training begins there too (train/heads_data.py). Steps that a drafter was not shown leave a gap, and the
memory begins anew behind it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from medusakit.drafters.base import DraftState
from medusakit.tree.topology import FloatArray


class Pair(NamedTuple):
    """A position i: its hidden state h_i [d], and the token at i + 1."""

    hidden: FloatArray
    token_id: int


@dataclass(slots=True)
class _Row:
    """place: t, the last accepted position; hidden: h_t; pairs: positions before t, the newest last."""

    place: int
    hidden: FloatArray
    pairs: deque[Pair]


class PairMemory:
    """The newest `keep` pairs of every row."""

    def __init__(self, keep: int) -> None:
        self._keep = keep
        self._rows: dict[int, _Row] = {}

    def meet(self, state: DraftState) -> bool:
        """A draft begins. False if nothing is known of what came just before it, so that the row starts here."""
        place, row = len(state.ids) - 2, self._rows.get(state.row)
        known = row is not None and row.place == place
        pairs = row.pairs if row is not None and known else deque(maxlen=self._keep)
        self._rows[state.row] = _Row(place, state.hidden, pairs)
        return known

    def pairs(self, row: int) -> Sequence[Pair]:
        return self._rows[row].pairs

    def clear(self, row: int) -> None:
        """Its pairs were read and need not be kept."""
        self._rows[row].pairs.clear()

    def observe(self, row: int, kept_ids: Sequence[int], hidden: FloatArray) -> None:
        """As `Drafter.observe`: kept_ids [m], the root first, and their hidden states [m, d]."""
        known = self._rows.get(row)
        if known is None or not kept_ids:
            return
        before = (known.hidden, *hidden[:-1])
        known.pairs.extend(Pair(state, int(token)) for state, token in zip(before, kept_ids, strict=True))
        known.place, known.hidden = known.place + len(kept_ids), hidden[-1]

    def forget(self, row: int) -> None:
        self._rows.pop(row, None)


@dataclass(frozen=True, slots=True)
class PairArrays:
    """Pairs of R rows, the newest last: hidden [R, m, d], embedded [R, m, d] (rms(e(token))), known [R, m, 1] 1.0 where
    there is one and 0.0 before."""

    hidden: FloatArray
    embedded: FloatArray
    known: FloatArray


def pair_arrays(
    rows: Sequence[Sequence[Pair]], length: int, size: int, embed: Callable[[Sequence[int]], FloatArray]
) -> PairArrays:
    """The pairs of every row (at most `length`), with zeros before them. embed: ids -> [n, d]."""
    arrays = PairArrays(
        np.zeros((len(rows), length, size), np.float32),
        np.zeros((len(rows), length, size), np.float32),
        np.zeros((len(rows), length, 1), np.float32),
    )
    for row, pairs in enumerate(rows):
        if pairs:
            arrays.hidden[row, -len(pairs) :] = [pair.hidden for pair in pairs]
            arrays.embedded[row, -len(pairs) :] = embed([pair.token_id for pair in pairs])
            arrays.known[row, -len(pairs) :] = 1.0
    return arrays
