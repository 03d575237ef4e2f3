"""Decoding is never knowingly slower than plain: where drafting does not pay, it pauses, drafter and all.

Two rules watch every step. The pause looks at the last few steps and comes back by itself: it probes after 16, 32, 64,
... plain steps, so that probing costs at most some 2 %. The circuit breaker looks at rounds of 64 steps,
and after three bad ones in a row stays plain much longer and has the deviation recorded.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from medusakit.engine.step import Outcome
from medusakit.tree.cost import StepCost
from medusakit.tree.search import rho_eff

KEEP = 31 / 32  # of a sum over steps
# Plain steps by which the recent ones of one row may be behind before drafting pauses. Luck varies by more than one if
# every step has a tree, by sqrt(share) of that if only a share has: a draft of which nothing is verified is a certain
# loss. The luck of r rows together varies by 1 / sqrt(r) of one's.
SLACK, LUCK = 0.5, 1.5
PROBE = 3  # steps
SHORTEST, LONGEST = 16, 512  # plain steps of a pause
TRIPPED = 256  # plain steps before the first probe after the breaker tripped
FRESH = 8  # plain steps before a probe at most when requests begin: their text may be another kind
ROUND = 64  # steps
BAD_ROUNDS = 3
SLOW = 0.97  # speed over plain decoding's under which a round is bad


@dataclass(frozen=True, slots=True)
class Round:
    """64 speculative steps. rho = accepted / offered depths, rho_eff = 1 - (1 - rho)^D with D the mean depth offered,
    tau tokens a step and row, speed over plain decoding's by measured times."""

    rho: float
    rho_eff: float
    tau: float
    speed: float
    depth: float


@dataclass(slots=True)
class _Sums:
    """Of speculative steps: what plain decoding would have taken for their tokens, and what they took."""

    plain_s: float = 0.0
    spent_s: float = 0.0
    steps: float = 0.0
    tokens: float = 0.0
    offered: float = 0.0
    accepted: float = 0.0
    rows: float = 0.0
    trees: float = 0.0

    def add(self, outcome: Outcome, plain_s: float, keep: float) -> None:
        self.plain_s = keep * self.plain_s + plain_s
        self.spent_s = keep * self.spent_s + outcome.seconds
        self.steps = keep * self.steps + 1
        self.tokens = keep * self.tokens + outcome.tokens
        self.offered = keep * self.offered + outcome.offered
        self.accepted = keep * self.accepted + outcome.accepted
        self.rows = keep * self.rows + outcome.num_rows
        self.trees = keep * self.trees + (outcome.width > 1)


class Guard:
    """Says at every step whether the next one drafts, and is told what that brought.

    cost         T(n, context); today's pace against it is learnt from the steps themselves
    breaker_rho  a round is bad if its rho_eff is under this, instead of by its speed; 0.85, say
    on_trip      told the round that tripped the breaker
    """

    def __init__(
        self, cost: StepCost, *, breaker_rho: float | None = None, on_trip: Callable[[Round], None] | None = None
    ) -> None:
        self._cost, self._breaker_rho, self._on_trip = cost, breaker_rho, on_trip
        self.reset()

    def reset(self) -> None:
        """As if nothing had been decoded yet."""
        self._recent, self._round = _Sums(), _Sums()
        self._tree_pace, self._plain_pace = 1.0, 0.0  # of today's passes against the table; 0: none seen
        self._left, self._pause, self._probing = 0, SHORTEST, False
        self._busy = 1  # rows, when drafting paused
        self._bad_rounds = 0
        self.last_round: Round | None = None

    def drafts(self, *, fresh: bool = False) -> bool:
        """Whether the next step drafts. fresh: most of its requests have just begun."""
        if fresh:
            self._left = min(self._left, FRESH)
        return self._left == 0

    def learn(self, outcome: Outcome) -> None:
        """A step was made: drafted (its plan has room for guesses) or plain."""
        self._keep_pace(outcome)
        if outcome.plan.budget > 1:
            self._judge(outcome)
        elif self._left:
            if 2 * outcome.num_rows <= self._busy:  # fewer rows leave more room for trees
                self._left, self._busy = min(self._left, FRESH), outcome.num_rows
            self._left -= 1
            self._probing = self._left == 0

    def _keep_pace(self, outcome: Outcome) -> None:
        pace = outcome.forward_s / self._cost.seconds(outcome.num_rows * outcome.width, outcome.context)
        if outcome.width == 1:
            self._plain_pace += (pace - self._plain_pace) / 16 if self._plain_pace else pace
        else:
            self._tree_pace += (pace - self._tree_pace) / 16

    def _judge(self, outcome: Outcome) -> None:
        plain_step = self._plain_step(outcome)
        plain_s = outcome.tokens / outcome.num_rows * plain_step
        self._recent.add(outcome, plain_s, KEEP)
        self._round.add(outcome, plain_s, 1.0)
        if self._probing and self._recent.steps < PROBE - 0.5:
            return
        self._busy = outcome.num_rows
        if self._recent.plain_s + self._slack(outcome.num_rows) * plain_step < self._recent.spent_s:
            self._rest(self._pause)
            self._pause = min(2 * self._pause, LONGEST)
        elif self._probing:
            self._probing, self._pause = False, max(SHORTEST, self._pause // 2)
        if self._round.steps == ROUND:
            self._close_round()

    def _slack(self, num_rows: int) -> float:
        """In plain steps."""
        share = self._recent.trees / self._recent.steps
        return 0.0 if self._probing else (SLACK + LUCK * math.sqrt(share)) / math.sqrt(num_rows)

    def _rest(self, steps: int) -> None:
        self._left, self._probing = steps, False
        self._recent = _Sums()

    def _plain_step(self, outcome: Outcome) -> float:
        """Seconds that a plain step of these rows would take now."""
        pace = self._plain_pace or self._tree_pace
        return pace * self._cost.seconds(outcome.num_rows, outcome.context) + outcome.other_s

    def _close_round(self) -> None:
        sums, self._round = self._round, _Sums()
        rho = sums.accepted / sums.offered if sums.offered else 0.0
        depth = sums.offered / sums.rows
        found = Round(rho, rho_eff(rho, depth), sums.tokens / sums.rows, sums.plain_s / sums.spent_s, depth)
        bad = found.speed < SLOW if self._breaker_rho is None else found.rho_eff < self._breaker_rho
        self._bad_rounds = self._bad_rounds + 1 if bad else 0
        self.last_round = found
        if self._bad_rounds == BAD_ROUNDS:
            self._bad_rounds, self._pause = 0, LONGEST
            self._rest(TRIPPED)
            if self._on_trip:
                self._on_trip(found)
