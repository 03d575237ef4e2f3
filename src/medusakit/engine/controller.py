"""What the next step does: which drafter, which tree, how many rows. Decided before any draw is seen."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from medusakit.drafters.base import Drafter, Learner
from medusakit.engine.drafting import DrafterFailure, raise_failure
from medusakit.engine.guard import Guard
from medusakit.engine.plan import PLAIN_PLAN, Plan
from medusakit.engine.session import Session
from medusakit.engine.step import Outcome


class Controller(Protocol):
    @property
    def drafter(self) -> Drafter:
        """What drafts where it plans for drafts."""
        ...

    def plan(self, sessions: Sequence[Session]) -> Plan:
        """The plan of one step for these sessions together."""
        ...

    def plans(self, sessions: Sequence[Session]) -> list[Plan]:
        """The plan of every one of them."""
        ...

    def failed(self, failure: DrafterFailure) -> None:
        """A drafter failed. Returns where its rows may go on plainly; else raises."""
        ...

    def learn(self, outcome: Outcome) -> None:
        """What that step brought and cost."""
        ...

    def forget(self, row: int) -> None:
        """The row leaves: drop what is known about it."""
        ...

    def reset(self) -> None:
        """Drop all that was learnt from steps, as if nothing had been decoded yet."""
        ...


class FixedController:
    """The same plan at every step."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan

    @property
    def drafter(self) -> Drafter:
        return self._plan.drafter

    def plan(self, sessions: Sequence[Session]) -> Plan:
        return self._plan

    def plans(self, sessions: Sequence[Session]) -> list[Plan]:
        return [self.plan(sessions)] * len(sessions)

    def failed(self, failure: DrafterFailure) -> None:
        raise_failure(failure)

    def learn(self, outcome: Outcome) -> None:
        """Nothing depends on it."""

    def forget(self, row: int) -> None:
        self._plan.drafter.forget(row)

    def reset(self) -> None:
        reset_drafter(self._plan.drafter)


class PlainController(FixedController):
    """Plain decoding through the same kernels: the baseline, and the way back at any time."""

    def __init__(self) -> None:
        super().__init__(PLAIN_PLAN)


class GuardedController(FixedController):
    """One plan while it pays, plain decoding (which skips the drafter too) while it does not."""

    def __init__(self, plan: Plan, guard: Guard) -> None:
        super().__init__(plan)
        self.guard = guard

    def plan(self, sessions: Sequence[Session]) -> Plan:
        fresh = 2 * sum(session.stats.num_steps == 0 for session in sessions) >= len(sessions) > 0
        return self._plan if self.guard.drafts(fresh=fresh) else PLAIN_PLAN

    def learn(self, outcome: Outcome) -> None:
        self.guard.learn(outcome)

    def reset(self) -> None:
        super().reset()
        self.guard.reset()


class ChosenController(PlainController):
    """Every session by the plan that was chosen for it."""

    def __init__(self) -> None:
        super().__init__()
        self._drafters: dict[int, Drafter] = {}  # by row

    def plans(self, sessions: Sequence[Session]) -> list[Plan]:
        plans = [session.plan or PLAIN_PLAN for session in sessions]
        self._drafters |= {session.row: plan.drafter for session, plan in zip(sessions, plans, strict=True)}
        return plans

    def forget(self, row: int) -> None:
        if (drafter := self._drafters.pop(row, None)) is not None:
            drafter.forget(row)

    def reset(self) -> None:
        for drafter in self._drafters.values():
            reset_drafter(drafter)


def reset_drafter(drafter: Drafter) -> None:
    """Drop what a drafter has learnt from steps, if it is one that learns."""
    if isinstance(drafter, Learner):
        drafter.reset()
