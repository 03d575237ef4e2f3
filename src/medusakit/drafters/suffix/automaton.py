"""A suffix automaton that grows with its text: all its substrings, what follows each, and how often.

Blumer et al. 1985. A state is a class of substrings that end at the same places; at most 2 n states and 3 n
transitions for n tokens, and appending a token is amortised constant time.
"""

from __future__ import annotations

from collections.abc import Mapping

START = 0  # the state of the empty string
COUNTED_DEPTH = 32


class SuffixAutomaton:
    """`extend` appends a token; `match` is the longest suffix of the text that also occurs further left.

    Counts are kept for the `COUNTED_DEPTH` longest repeated suffixes of each place, which bounds the time of a token in
    texts that repeat themselves; those of shorter suffixes saturate there ("aaaa..." is such a text).

    work  links and counts touched so far: what the amortised bound speaks of (tests read it)
    """

    __slots__ = ("_counts", "_last", "_lengths", "_links", "_successors", "work")

    def __init__(self) -> None:
        self._lengths = [0]
        self._links = [-1]
        self._counts = [0]
        self._successors: list[dict[int, int]] = [{}]
        self._last = START
        self.work = 0

    @property
    def num_tokens(self) -> int:
        """Length of the text."""
        return self._lengths[self._last]

    @property
    def num_states(self) -> int:
        return len(self._lengths)

    @property
    def num_transitions(self) -> int:
        return sum(map(len, self._successors))

    @property
    def match(self) -> int:
        """State of the longest suffix of the text that occurs at an earlier place too; START if there is none."""
        return max(START, self._links[self._last])

    def length(self, state: int) -> int:
        """Tokens of the longest substring of a state."""
        return self._lengths[state]

    def shorter(self, state: int) -> int:
        """State of the longest suffix that occurs at more places than the state's own substrings."""
        return self._links[state]

    def successors(self, state: int) -> Mapping[int, int]:
        """Token -> state after it, for every token that follows the state's substrings somewhere in the text."""
        return self._successors[state]

    def count(self, state: int) -> int:
        """Places of the text at which the state's substrings end."""
        return self._counts[state]

    def extend(self, token: int) -> None:
        """Append a token to the text."""
        new = self._add(self._lengths[self._last] + 1, {}, count=0)
        state = self._last
        while state >= 0 and token not in self._successors[state]:
            self._successors[state][token] = new
            state = self._links[state]
            self.work += 1
        self._links[new] = START if state < 0 else self._target(state, token)
        self._last = new
        self._count(new)

    def _target(self, state: int, token: int) -> int:
        """The state of exactly (longest substring of `state`) + token, split off from a longer one if need be."""
        found = self._successors[state][token]
        length = self._lengths[state] + 1
        if self._lengths[found] == length:
            return found
        clone = self._add(length, self._successors[found].copy(), count=self._counts[found])
        self._links[clone] = self._links[found]
        self._links[found] = clone
        while state >= 0 and self._successors[state].get(token) == found:
            self._successors[state][token] = clone
            state = self._links[state]
            self.work += 1
        return clone

    def _add(self, length: int, successors: dict[int, int], count: int) -> int:
        self._lengths.append(length)
        self._links.append(-1)
        self._counts.append(count)
        self._successors.append(successors)
        return len(self._lengths) - 1

    def _count(self, state: int) -> None:
        for _ in range(COUNTED_DEPTH):
            if state <= START:
                return
            self._counts[state] += 1
            state = self._links[state]
            self.work += 1
