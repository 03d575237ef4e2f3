"""What one step does for a row: which drafter, which trees, how many rows of the pass."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from medusakit.drafters.base import Drafter, DraftState
from medusakit.tree.policy import TreePolicy
from medusakit.tree.topology import PLAIN, Draft, FloatArray, Shape, Tree


@dataclass(frozen=True, slots=True)
class Plan:
    """What was decided for a step. `budget` counts rows of the pass per sequence, root included."""

    drafter: Drafter
    policy: TreePolicy
    budget: int


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


def make_plan(drafter: Drafter, policy: TreePolicy, budget: int) -> Plan:
    """The plan for a budget: one row is plain decoding, and plain decoding skips the drafter."""
    return Plan(drafter, policy, budget) if budget > 1 else PLAIN_PLAN
