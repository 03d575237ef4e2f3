"""What the next step does: which drafter, which tree, how many rows. Decided before any draw is seen."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from medusakit.drafters.base import Drafter, DraftState, Learner, Shape
from medusakit.engine.guard import Guard
from medusakit.engine.session import Session
from medusakit.engine.step import Outcome, Plan
from medusakit.tree.policy import TreePolicy
from medusakit.tree.topology import PLAIN, Draft, FloatArray, Tree


class Controller(Protocol):
    def plan(self, sessions: Sequence[Session]) -> Plan:
        """The plan of one step for these sessions together."""
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


class NoDrafter:
    """Plain decoding as a drafter: it proposes the root alone."""

    name = "none"
    max_depth = 0

    def propose(self, states: Sequence[DraftState], shape: Shape) -> list[Draft]:
        return [Draft.plain(state.root_id) for state in states]

    def observe(self, row: int, kept_ids: Sequence[int], hidden: FloatArray) -> None:
        """Nothing to learn."""

    def forget(self, row: int) -> None:
        """Nothing was kept."""


class RootOnly:
    """The policy of plain decoding."""

    shape: Shape = PLAIN

    def select(self, drafts: Sequence[Draft], rooms: Sequence[int], context: int) -> list[Tree]:
        return [Tree(PLAIN, draft.tokens[:1]) for draft in drafts]


PLAIN_PLAN = Plan(NoDrafter(), RootOnly(), 1)


class FixedController:
    """The same plan at every step."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan

    def plan(self, sessions: Sequence[Session]) -> Plan:
        return self._plan

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
        fresh = any(session.stats.num_steps == 0 for session in sessions)
        return self._plan if self.guard.drafts(fresh=fresh) else PLAIN_PLAN

    def learn(self, outcome: Outcome) -> None:
        self.guard.learn(outcome)

    def reset(self) -> None:
        super().reset()
        self.guard.reset()


class Switch:
    """Another controller, which can be exchanged or switched off (plain decoding) between steps. Sessions that all
    decode plainly by their own wish say nothing about drafting, so it is not asked for them."""

    def __init__(self, inner: Controller) -> None:
        self.inner, self.on = inner, True

    def plan(self, sessions: Sequence[Session]) -> Plan:
        drafts = self.on and any(session.max_nodes != 1 for session in sessions)
        return self.inner.plan(sessions) if drafts else PLAIN_PLAN

    def learn(self, outcome: Outcome) -> None:
        self.inner.learn(outcome)

    def forget(self, row: int) -> None:
        self.inner.forget(row)

    def reset(self) -> None:
        self.inner.reset()


def make_plan(drafter: Drafter, policy: TreePolicy, budget: int) -> Plan:
    """The plan for a budget: one row is plain decoding, and plain decoding skips the drafter."""
    return Plan(drafter, policy, budget) if budget > 1 else PLAIN_PLAN


def reset_drafter(drafter: Drafter) -> None:
    """Drop what a drafter has learnt from steps, if it is one that learns."""
    if isinstance(drafter, Learner):
        drafter.reset()
