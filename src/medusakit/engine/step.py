"""One decoding step, as the paper tells it. Read this file first.

    draft    a drafter guesses some tokens ahead of the root (already decided, not yet in the KV); a rule that knows the
             form of the answer strikes out what it forbids and adds what it forces
    expand   a policy picks a tree of the guesses, within the budget
    forward  the model scores every node of the tree in one pass
    walk     the acceptance rule follows the longest path that the model agrees with; its last pick is the bonus
    emit     accepted tokens and the bonus go out, up to the answer's end; the bonus is the next step's root
    commit   the KV of what was emitted is kept

Plain decoding is the same step with a tree of one node. There is no branch here on runtime, drafter family or rule.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from medusakit.drafters.base import Drafter, show_step
from medusakit.engine.drafting import DrafterFailure, OnFailure, draft_trees, raise_failure
from medusakit.engine.plan import Plan
from medusakit.engine.session import Session
from medusakit.runtimes.base import Runtime, Scores
from medusakit.tree.topology import Topology, Tree
from medusakit.verify.walk import walk


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a step brought and cost, all rows together, for the controller.

    tokens    emitted; offered and accepted: depths of the trees, and how many of them were accepted
    nodes     rows of the pass; width: of the widest tree
    context   positions of the longest row
    depths    per row: depth of its tree, and drafted tokens accepted
    walked    per row: shape of its tree, and the nodes of it that were kept
    plan      of the first row; mixed: others had other plans
    """

    plan: Plan
    num_rows: int
    tokens: int
    offered: int
    accepted: int
    nodes: int
    width: int
    context: int
    draft_s: float
    forward_s: float
    other_s: float
    depths: tuple[tuple[int, int], ...] = ()
    walked: tuple[tuple[Topology, tuple[int, ...]], ...] = ()
    mixed: bool = False

    @property
    def seconds(self) -> float:
        return self.draft_s + self.forward_s + self.other_s


def step(
    sessions: Sequence[Session],
    plans: Sequence[Plan],
    runtime: Runtime,
    clock: Callable[[], float],
    on_failure: OnFailure = raise_failure,
) -> Outcome:
    """Advance every session, by its own plan, by at least one token. Sessions must be running and have distinct rows.
    One whose own rule or text raises fails alone; what the model raises is raised here, for all. A drafter that fails
    is told to `on_failure`; if that returns, its rows make this step plainly.
    """
    started = clock()
    context = max(len(session.ids) for session in sessions)
    trees, plans = draft_trees(sessions, plans, runtime.spec.vocab_size, on_failure)
    drafted = clock()
    scores = runtime.forward([(session.row, tree) for session, tree in zip(sessions, trees, strict=True)])
    scored = clock()
    taken = []
    for session, tree, row_scores, plan in zip(sessions, trees, scores, plans, strict=True):
        taken.append(found := _emitted(session, tree, row_scores))
        if found.kept:
            _commit(session, row_scores, found.kept, runtime)
            if (error := _shown(session, tree, row_scores, found.kept, plan.drafter)) is not None:
                on_failure(DrafterFailure(plan.drafter, _rows(plan.drafter, sessions, plans), error))
    finished = clock()
    for session in sessions:
        session.stats.draft_s += drafted - started
        session.stats.forward_s += scored - drafted
        session.stats.other_s += finished - scored
    return Outcome(
        plan=plans[0],
        num_rows=len(sessions),
        tokens=sum(found.tokens for found in taken),
        offered=sum(tree.topology.max_depth for tree in trees),
        accepted=sum(found.num_accepted for found in taken),
        nodes=sum(tree.num_nodes for tree in trees),
        width=max(tree.num_nodes for tree in trees),
        context=context,
        draft_s=drafted - started,
        forward_s=scored - drafted,
        other_s=finished - scored,
        depths=tuple((tree.topology.max_depth, found.num_accepted) for tree, found in zip(trees, taken, strict=True)),
        walked=tuple((tree.topology, found.kept) for tree, found in zip(trees, taken, strict=True)),
        mixed=any(plan is not plans[0] for plan in plans),
    )


class _Emitted(NamedTuple):
    """tokens: that went out; num_accepted: of the path; kept: its nodes whose KV stays, none of a row that failed."""

    tokens: int = 0
    num_accepted: int = 0
    kept: tuple[int, ...] = ()


def _emitted(session: Session, tree: Tree, scores: Scores) -> _Emitted:
    """An error of the session's own rule or text ends the session alone."""
    try:
        path = walk(tree, scores, session.rule, session.ids)
        emitted = session.emit(tree, path)
    except Exception as error:
        session.fail(error)
        return _Emitted()
    return _Emitted(emitted, path.num_accepted, path.kept(emitted))


def _commit(session: Session, scores: Scores, kept: Sequence[int], runtime: Runtime) -> None:
    runtime.commit(session.row, kept)
    session.hidden = scores.hidden(kept[-1]).copy()


def _shown(session: Session, tree: Tree, scores: Scores, kept: Sequence[int], drafter: Drafter) -> Exception | None:
    """The drafter learns what was kept; an error of its own, if it cannot."""
    ids = [int(tree.tokens[node]) for node in kept]
    hidden = np.stack([scores.hidden(node) for node in kept])
    try:
        drafter.observe(session.row, ids, hidden)
        show_step(drafter, session.row, tree, kept, scores)
    except Exception as error:
        return error
    return None


def _rows(drafter: Drafter, sessions: Sequence[Session], plans: Sequence[Plan]) -> tuple[int, ...]:
    return tuple(session.row for session, plan in zip(sessions, plans, strict=True) if plan.drafter is drafter)
