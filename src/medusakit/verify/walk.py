"""The walk over a verified tree: the best path that a rule accepts. Shared by all rules.

Only visited nodes are judged, each with the history of its own path, so penalties and filters are exact along the path.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from medusakit.runtimes.base import Scores
from medusakit.tree.topology import Tree
from medusakit.verify.base import Acceptance, Top, Verdict
from medusakit.verify.history import PathHistory


@dataclass(frozen=True, slots=True)
class Walk:
    """What one step emits and keeps.

    nodes        kept nodes, root first: what `Runtime.commit` takes when everything is emitted
    token_ids    emitted tokens: the accepted drafted tokens in order (token i sits at nodes[i + 1]), then the bonus
    logprobs     one per emitted token under the request's processed distribution; NaN where the rule did not compute it
    num_visited  nodes that were judged
    tops         per emitted token the best tokens at its place (`Verdict.top`); empty where none were asked for
    """

    nodes: tuple[int, ...]
    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    num_visited: int
    tops: tuple[Top, ...] = ()

    @property
    def bonus_id(self) -> int:
        """The model's own pick at the end of the path: the root of the next step."""
        return self.token_ids[-1]

    @property
    def num_accepted(self) -> int:
        """Drafted tokens kept."""
        return len(self.nodes) - 1

    def kept(self, num_tokens: int) -> tuple[int, ...]:
        """Nodes to commit when only the first `num_tokens` emitted tokens are used (end of sequence, stop, limit).

        These are the root and the used drafted tokens; the bonus is never in the KV.
        """
        return self.nodes[: num_tokens + 1]


@dataclass(frozen=True, slots=True)
class _Reached:
    """A path that every rule on the way accepted, with the log-probabilities of its drafted tokens."""

    nodes: tuple[int, ...]
    drafted: tuple[int, ...] = ()
    logprobs: tuple[float, ...] = ()
    weight: float = 0.0
    tops: tuple[Top, ...] = ()

    def extended(self, child: int, token: int, weight: float, logprob: float, top: Top) -> _Reached:
        nodes, drafted = (*self.nodes, child), (*self.drafted, token)
        return _Reached(nodes, drafted, (*self.logprobs, logprob), self.weight + weight, (*self.tops, top))

    def score(self, path_weight: float) -> tuple[float, float]:
        return len(self.drafted) + path_weight * self.weight, self.weight


def walk(tree: Tree, scores: Scores, rule: Acceptance, history: Sequence[int]) -> Walk:
    """The best acceptable path: that of the largest depth + path weight * sum of log p (`Verdict.weight`). With weight
    0 (all rules but `dynamic`) the longest path. Ties go to the larger sum of log p, then to the earlier node.

    history  the row's ids, prompt and output, up to and including the root (node 0): its length is the absolute
             position of the token that node 0 decides. It is read, never copied.
    """
    tokens = tree.tokens.tolist()
    children = tree.topology.children
    pending = [_Reached((0,))]
    best, verdict, num_visited = pending[0], None, 0
    while pending:
        reached = pending.pop()
        node = reached.nodes[-1]
        path = PathHistory(history, reached.drafted) if reached.drafted else history
        judged = rule.decide(scores, node, [(child, tokens[child]) for child in children[node]], path)
        num_visited += 1
        if verdict is None or reached.score(rule.path_weight) > best.score(rule.path_weight):
            best, verdict = reached, judged
        pending.extend(reversed(_extensions(reached, judged, tokens)))
    assert verdict is not None  # node 0 is always judged
    tops = (*best.tops, verdict.top)
    return Walk(
        best.nodes,
        (*best.drafted, verdict.pick),
        (*best.logprobs, verdict.logprob),
        num_visited,
        tops if any(tops) else (),
    )


def _extensions(reached: _Reached, verdict: Verdict, tokens: list[int]) -> list[_Reached]:
    weights = verdict.weight or (0.0,) * len(verdict.accepted)
    return [
        # the exact rules accept only their own pick, whose log p they may have computed; lossy ones give it as weight
        reached.extended(
            child, tokens[child], weight, verdict.logprob if tokens[child] == verdict.pick else weight, verdict.top
        )
        for child, weight in zip(verdict.accepted, weights, strict=True)
    ]
