"""Stop strings found in text that comes in parts, whichever way it is cut."""

from __future__ import annotations

from collections.abc import Sequence

from medusakit.errors import UsageError


class StopMatcher:
    """Follows every stop string through a text, one character at a time (Knuth, Morris, Pratt): linear in its length.

    The stop that is complete first wins; of several complete at one character, the longest. For one stop string that is
    `text.find(stop)`.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        if "" in stops:
            raise UsageError("a stop string is empty; every text ends with it", hint="leave it out")
        self._stops = tuple(dict.fromkeys(stops))
        self._fallbacks = [_fallbacks(stop) for stop in self._stops]
        self._matched = [0] * len(self._stops)

    @property
    def pending(self) -> int:
        """How many characters at the end of the text so far may be the beginning of a stop string."""
        return max(self._matched, default=0)

    def feed(self, text: str) -> tuple[int, int] | None:
        """Continue with `text`. (end, length) of a stop that completes; `end` is an index into `text`, one past it.

        The matcher is done once a stop was found.
        """
        if not self._stops:
            return None
        for at, char in enumerate(text):
            length = self._advance(char)
            if length:
                return at + 1, length
        return None

    def _advance(self, char: str) -> int:
        """Length of the longest stop that ends with `char`, 0 for none."""
        found = 0
        for index, stop in enumerate(self._stops):
            matched, fallbacks = self._matched[index], self._fallbacks[index]
            while matched and stop[matched] != char:
                matched = fallbacks[matched - 1]
            matched += stop[matched] == char
            self._matched[index] = matched
            if matched == len(stop):
                found = max(found, matched)
        return found


def _fallbacks(stop: str) -> list[int]:
    """For each prefix of the stop: the length of its longest proper prefix that is also its suffix."""
    lengths = [0] * len(stop)
    matched = 0
    for at in range(1, len(stop)):
        while matched and stop[at] != stop[matched]:
            matched = lengths[matched - 1]
        matched += stop[at] == stop[matched]
        lengths[at] = matched
    return lengths
