"""One decoding step, as the paper tells it. Read this file first.

    draft    a drafter guesses some tokens ahead of the root (already decided, not yet in the KV)
    expand   a policy picks a tree of the guesses, within the budget
    forward  the model scores every node of the tree in one pass
    walk     the acceptance rule follows the longest path that the model agrees with; its last pick is the bonus
    commit   the KV of the accepted path is kept
    emit     accepted tokens and the bonus go out; the bonus is the next step's root

Plain decoding is the same step with a tree of one node. There is no branch here on runtime, drafter family or rule.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from medusakit.drafters.base import Drafter, show_step
from medusakit.engine.session import Session
from medusakit.runtimes.base import Runtime
from medusakit.tree.policy import TreePolicy
from medusakit.verify.walk import walk


@dataclass(frozen=True, slots=True)
class Plan:
    """What the controller decided for this step. `budget` counts rows of the pass per sequence, root included."""

    drafter: Drafter
    policy: TreePolicy
    budget: int


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a step brought and cost, all rows together, for the controller.

    tokens    emitted; offered and accepted: depths of the trees, and how many of them were accepted
    nodes     rows of the pass; width: of the widest tree
    context   positions of the longest row
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

    @property
    def seconds(self) -> float:
        return self.draft_s + self.forward_s + self.other_s


def step(sessions: Sequence[Session], plan: Plan, runtime: Runtime, clock: Callable[[], float]) -> Outcome:
    """Advance every session by at least one token. Sessions must be running and have distinct rows."""
    started = clock()
    drafts = plan.drafter.propose([session.draft_state() for session in sessions], plan.policy.shape)
    context = max(len(session.ids) for session in sessions)
    trees = plan.policy.select(drafts, [session.room(plan.budget) for session in sessions], context)
    drafted = clock()
    scores = runtime.forward([(session.row, tree) for session, tree in zip(sessions, trees, strict=True)])
    scored = clock()
    tokens = accepted = 0
    for session, tree, row_scores in zip(sessions, trees, scores, strict=True):
        path = walk(tree, row_scores, session.rule, session.ids)
        emitted = session.emit(tree, path)
        kept = path.kept(emitted)
        tokens, accepted = tokens + emitted, accepted + path.num_accepted
        runtime.commit(session.row, kept)
        session.hidden = row_scores.hidden(kept[-1]).copy()
        plan.drafter.observe(
            session.row,
            [int(tree.tokens[node]) for node in kept],
            np.stack([row_scores.hidden(node) for node in kept]),
        )
        show_step(plan.drafter, session.row, tree, kept, row_scores)
    finished = clock()
    for session in sessions:
        session.stats.draft_s += drafted - started
        session.stats.forward_s += scored - drafted
        session.stats.other_s += finished - scored
    return Outcome(
        plan,
        len(sessions),
        tokens,
        sum(tree.topology.max_depth for tree in trees),
        accepted,
        sum(tree.num_nodes for tree in trees),
        max(tree.num_nodes for tree in trees),
        context,
        drafted - started,
        scored - drafted,
        finished - scored,
    )
