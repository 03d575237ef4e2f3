"""What the next step does: which drafter, which tree, how many rows. Decided before any draw is seen.

Which budget pays is computed at load (engine/budget.py) from the calibrated tree and the machine's measured T(n).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from medusakit.drafters.base import Drafter, DraftState, Shape
from medusakit.engine.session import Session
from medusakit.engine.step import Plan
from medusakit.tree.policy import TreePolicy
from medusakit.tree.topology import PLAIN, Draft, FloatArray, Tree


class Controller(Protocol):
    def plan(self, sessions: Sequence[Session]) -> Plan:
        """The plan of one step for these sessions together."""
        ...

    def forget(self, row: int) -> None:
        """The row leaves: drop what is known about it."""
        ...


class NoDrafter:
    """Plain decoding as a drafter: it proposes the root alone."""

    name = "none"
    max_depth = 0

    def propose(self, states: Sequence[DraftState], shape: Shape) -> list[Draft]:
        nothing = np.zeros(1, dtype=np.float32)
        return [Draft(PLAIN, np.array([state.root_id], dtype=np.int64), nothing) for state in states]

    def observe(self, row: int, kept_ids: Sequence[int], hidden: FloatArray) -> None:
        """Nothing to learn."""

    def forget(self, row: int) -> None:
        """Nothing was kept."""


class RootOnly:
    """The policy of plain decoding."""

    shape: Shape = PLAIN

    def select(self, draft: Draft, budget: int) -> Tree:
        return Tree(PLAIN, draft.tokens[:1])


PLAIN_PLAN = Plan(NoDrafter(), RootOnly(), 1)


class PlainController:
    """Plain decoding through the same kernels: the baseline, and the way back at any time."""

    def plan(self, sessions: Sequence[Session]) -> Plan:
        return PLAIN_PLAN

    def forget(self, row: int) -> None:
        """Nothing was kept."""


class StaticController:
    """One plan per number of active sequences, decided at load: plans[r - 1] serves r (the last one serves more)."""

    def __init__(self, plans: Sequence[Plan]) -> None:
        self._plans = tuple(plans)

    def plan(self, sessions: Sequence[Session]) -> Plan:
        return self._plans[min(len(sessions), len(self._plans)) - 1]

    def forget(self, row: int) -> None:
        for plan in self._plans:
            plan.drafter.forget(row)


def make_plan(drafter: Drafter, policy: TreePolicy, budget: int) -> Plan:
    """The plan for a budget: one row is plain decoding, and plain decoding skips the drafter."""
    return Plan(drafter, policy, budget) if budget > 1 else PLAIN_PLAN
