"""Drafts what followed the last time: continuations of the longest suffix of the text that occurs earlier in it.

The text is the row's own prompt and output. Suffix automata for drafting: SAM-Decoding (2411.10666); trees of
continuations by their counts: SuffixDecoding (2411.04975).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from medusakit.drafters.base import DraftState
from medusakit.drafters.suffix.automaton import START, SuffixAutomaton
from medusakit.drafters.trie import Guess, grow
from medusakit.tree.topology import Beam, Draft, FloatArray, Shape

FAMILY = "suffix"
BEAM = Beam((8, 8, 6, 6, 4, 4, 4, 4) + (2,) * 24)
MAX_TOKENS = 32768
MAX_LEVELS = 3
MAX_SUCCESSORS = 64

# Absolute discount of a token that followed the longest match (Ney, Essen and Kneser 1994), by the match's length: up
# to 1, 2, 3, ... tokens. For a context that was seen once, it is the share of places at which another token than the
# one seen came next. Measured on 250k tokens of greedy answers of SmolLM2-135M-Instruct.
DISCOUNT_LENGTHS = (1, 2, 3, 4, 5, 6, 8, 11, 16, 24, 40)
DISCOUNTS = (0.77, 0.49, 0.40, 0.35, 0.28, 0.23, 0.20, 0.17, 0.12, 0.07, 0.03, 0.005)
DISCOUNT_AMBIGUOUS = 0.5  # at least, where different tokens followed
DISCOUNT_BEHIND = 0.8  # of tokens that only shorter matches know


class Match(NamedTuple):
    """A suffix that occurs in the text: its state, and how many tokens of it matched."""

    state: int
    length: int


class SuffixDrafter:
    """One automaton a row, of its last `max_tokens` ids at most: about 0.45 kB a token, 15 MB a row at the limit.

    What is read are the ids of `DraftState`, so rejected tokens never get in, and steps that were decoded plainly are
    caught up with at the next proposal.
    """

    name = FAMILY
    max_depth = len(BEAM.widths)

    def __init__(self, *, max_tokens: int = MAX_TOKENS) -> None:
        self._max_tokens = max_tokens
        self._rows: dict[int, _Row] = {}

    def propose(self, states: Sequence[DraftState], shape: Shape) -> list[Draft]:
        return [self._propose(state, shape) for state in states]

    def observe(self, row: int, kept_ids: Sequence[int], hidden: FloatArray) -> None:
        """Kept ids come with the next proposal's state."""

    def forget(self, row: int) -> None:
        self._rows.pop(row, None)

    def _propose(self, state: DraftState, shape: Shape) -> Draft:
        row = self._rows.get(state.row)
        if row is None or not row.precedes(state.ids):
            row = self._rows[state.row] = _Row()
        row.catch_up(state.ids, self._max_tokens)
        automaton = row.automaton
        match = Match(automaton.match, automaton.length(automaton.match))
        draft = grow(state.root_id, match, lambda at, limit: continuations(automaton, at, limit), shape)
        return replace(draft, evidence=match.length)


class _Row:
    """The automaton of ids[...:end]."""

    __slots__ = ("_end", "_last_id", "automaton")

    def __init__(self) -> None:
        self.automaton = SuffixAutomaton()
        self._end, self._last_id = 0, -1

    def precedes(self, ids: Sequence[int]) -> bool:
        """These ids can be what was read with more at the end. Only a row that was not forgotten fails this."""
        return self._end == 0 or (self._end <= len(ids) and ids[self._end - 1] == self._last_id)

    def catch_up(self, ids: Sequence[int], max_tokens: int) -> None:
        """Read on. A full automaton is made anew of the last half of what it may hold: amortised constant time."""
        if self.automaton.num_tokens + len(ids) - self._end > max_tokens:
            self.automaton, self._end = SuffixAutomaton(), max(0, len(ids) - max(1, max_tokens // 2))
        for token in ids[self._end :]:
            self.automaton.extend(token)
        self._end, self._last_id = len(ids), ids[-1]


def discount(length: int, distinct: int) -> float:
    """What each token seen after the longest match counts less than it did."""
    known = DISCOUNTS[bisect_left(DISCOUNT_LENGTHS, length)]
    return known if distinct == 1 else max(known, DISCOUNT_AMBIGUOUS)


def continuations(automaton: SuffixAutomaton, match: Match, limit: int) -> list[Guess[Match]]:
    """What may follow a match: its own successors first, what is left to the shorter matches behind it.

    p(c | s) = (count(s c) - D) / count(s .); the share D * distinct(s .) / count(s .) goes to the tokens that only
    follow shorter matches (PPM's exclusion, with absolute discounts).
    """
    found: dict[int, tuple[float, Match]] = {}
    left, (state, length) = 1.0, match
    for _ in range(MAX_LEVELS):
        if state == START:
            break
        successors = automaton.successors(state)
        if len(successors) <= MAX_SUCCESSORS:
            new = [(token, after, automaton.count(after)) for token, after in successors.items() if token not in found]
            if new:
                total = sum(count for _, _, count in new)
                cut = DISCOUNT_BEHIND if found else discount(length, len(new))
                for token, after, count in new:
                    found[token] = left * (count - cut) / total, Match(after, length + 1)
                left *= cut * len(new) / total
        state = automaton.shorter(state)
        length = automaton.length(state)
    best = sorted(found.items(), key=lambda item: -item[1][0])[:limit]
    return [Guess(token, share, after) for token, (share, after) in best]
