"""Whether a drafter that costs time is worth asking at this step, and how unsure a path may be to be followed further.

Beside other sources, what counts is what the heads add: tokens that were accepted from the first node on that only they
had. Where a long match of the text goes on, that is nothing, and the heads are not even run.
"""

from __future__ import annotations

from bisect import bisect_right

from medusakit.tree.cost import Rate

EDGES = (0.05, 0.2, 0.4, 0.6, 0.8, 0.9, 0.95)  # of the best probability that the other sources give a next token
WINDOW = 32  # steps of an average
TRUST = 4  # steps of belief in the optimistic start
START = 1.0  # tokens that a draft is believed to bring
EXPLORE = 24  # in so many steps one asks all the same, to find out whether that has come to pay
START_S = 1e-3  # of a draft, and a share of it for each further level, before they were measured
LEVEL_SHARE = 0.2
NEXT = 0.6  # tokens that one more level brings where the paths before it are sure


class DraftWorth:
    """Running averages of one costly source: tokens it brings in each situation, seconds it takes."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Optimistic, so that it is tried before it is judged."""
        situations = len(EDGES) + 1
        self._brought, self._seen = [START] * situations, [TRUST] * situations
        self._passed = [0] * situations
        self._seconds, self._timed = START_S, 0

    def asks(self, best_elsewhere: float, rate: Rate) -> bool:
        """best_elsewhere: of the other sources' next tokens."""
        situation = bisect_right(EDGES, best_elsewhere)
        if self._brought[situation] > rate.tokens_of(self._seconds):
            return True
        self._passed[situation] = (self._passed[situation] + 1) % EXPLORE
        return self._passed[situation] == 0

    def least(self, rate: Rate) -> float:
        """The probability of a path under which a further level of it is worth neither its time nor its node's."""
        return min(1.0, rate.tokens_of(LEVEL_SHARE * self._seconds + rate.node_s) / NEXT)

    def took(self, seconds: float) -> None:
        self._timed = min(self._timed + 1, WINDOW)
        self._seconds += (seconds - self._seconds) / self._timed

    def learn(self, best_elsewhere: float, brought: int) -> None:
        """A step that asked: accepted tokens that are owed to the source."""
        situation = bisect_right(EDGES, best_elsewhere)
        self._seen[situation] = min(self._seen[situation] + 1, WINDOW)
        self._brought[situation] += (brought - self._brought[situation]) / self._seen[situation]
