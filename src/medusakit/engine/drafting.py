"""The first half of a step: from every row's plan to its tree. What a drafter does wrong is found here.

Trees decide how fast an answer comes, never what it says; so a drafter that raises, or proposes what is no tree of
tokens, need not end anybody's answer: its rows can make this step plainly. Who drives the steps decides (`OnFailure`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from medusakit.drafters.base import Drafter
from medusakit.engine.plan import PLAIN_PLAN, Plan
from medusakit.engine.session import Session
from medusakit.errors import RuntimeFailure
from medusakit.tree.topology import Draft, Tree
from medusakit.verify.base import guide


@dataclass(frozen=True, slots=True)
class DrafterFailure:
    """A drafter that raised, or proposed nonsense. rows: those that it drafted for in that step."""

    drafter: Drafter
    rows: tuple[int, ...]
    error: Exception


# Returns where the rows may go on plainly; else raises, which ends the step.
OnFailure = Callable[[DrafterFailure], None]


def raise_failure(failure: DrafterFailure) -> None:
    """For who has nobody to fall back for: the error is the caller's to see."""
    raise failure.error


def draft_trees(
    sessions: Sequence[Session], plans: Sequence[Plan], vocab_size: int, on_failure: OnFailure
) -> tuple[list[Tree], list[Plan]]:
    """Per session, its tree and the plan that it is of: PLAIN_PLAN where its drafter failed."""
    context = max(len(session.ids) for session in sessions)
    trees: dict[int, Tree] = {}
    made: dict[int, Plan] = {}
    for plan in {id(plan): plan for plan in plans}.values():
        members = [session for session, its in zip(sessions, plans, strict=True) if its is plan]
        rows = tuple(session.row for session in members)
        try:
            found = _select(members, plan, context, vocab_size)
        except Exception as error:
            on_failure(DrafterFailure(plan.drafter, rows, error))
            plan, found = PLAIN_PLAN, [Tree.plain(session.ids[-1]) for session in members]
        trees.update(zip(rows, found, strict=True))
        made.update((row, plan) for row in rows)
    return [trees[session.row] for session in sessions], [made[session.row] for session in sessions]


def _select(sessions: Sequence[Session], plan: Plan, context: int, vocab_size: int) -> list[Tree]:
    rooms = [session.room(plan.budget) for session in sessions]
    trees = plan.policy.select(_drafts(sessions, rooms, plan, vocab_size), rooms, context)
    for session, tree, room in zip(sessions, trees, rooms, strict=True):
        _check(tree, session.ids[-1], room, vocab_size)
    return trees


def _drafts(sessions: Sequence[Session], rooms: Sequence[int], plan: Plan, vocab_size: int) -> list[Draft]:
    """The drafter is only asked where there is room for a guess."""
    states = [session.draft_state() for session, room in zip(sessions, rooms, strict=True) if room > 1]
    proposed = plan.drafter.propose(states, plan.policy.shape) if states else []
    if len(proposed) != len(states):
        raise _nonsense(f"{len(proposed)} drafts for {len(states)} rows")
    left = iter(proposed)
    return [
        _guided(session, next(left), vocab_size) if room > 1 else Draft.plain(session.ids[-1])
        for session, room in zip(sessions, rooms, strict=True)
    ]


def _guided(session: Session, draft: Draft, vocab_size: int) -> Draft:
    """A rule that cannot guide is no fault of the drafter's: it will say so itself when it decides."""
    _check(draft, session.ids[-1], draft.topology.num_nodes, vocab_size)
    try:
        return guide(session.rule, draft, session.ids)
    except Exception:
        return draft


def _check(tree: Tree | Draft, root_id: int, room: int, vocab_size: int) -> None:
    """Raises RuntimeFailure for a tree that neither a rule nor the model must be shown."""
    tokens, num_nodes = tree.tokens, tree.topology.num_nodes
    if not tree.topology.is_tree:
        raise _nonsense("nodes that form no tree")
    if tokens.shape != (num_nodes,) or not np.issubdtype(tokens.dtype, np.integer):
        raise _nonsense(f"tokens of shape {tokens.shape} and type {tokens.dtype} for {num_nodes} nodes")
    if num_nodes > room:
        raise _nonsense(f"{num_nodes} nodes where there is room for {room}")
    if tokens[0] != root_id:
        raise _nonsense(f"the root {tokens[0]}, but it is {root_id}")
    if num_nodes > 1 and not (tokens.min() >= 0 and tokens.max() < vocab_size):
        raise _nonsense(f"token ids from {tokens.min()} to {tokens.max()}; the vocabulary has {vocab_size}")


def _nonsense(what: str) -> RuntimeFailure:
    return RuntimeFailure(f"the drafter proposed {what}", hint="--no-speculation")
