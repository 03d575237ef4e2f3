"""The seam `Acceptance`: which of a node's children are acceptable, and which token ends the path there.

Pure functions of values. The walk over the tree (verify/walk.py) is shared by all rules.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from medusakit.runtimes.base import Scores
from medusakit.tree.topology import Draft

Top = tuple[tuple[int, float], ...]


@dataclass(frozen=True, slots=True)
class Verdict:
    """A rule's answer at one node.

    accepted  children (node indices) that may be walked to; at most one in the exact rules
    pick      the token to emit if the path ends here (the bonus)
    weight    log p of each accepted child, for choosing among paths (the lossy rules); 0.0 in the exact ones
    logprob   log p of `pick` under the request's own processed distribution, NaN where a rule did not compute it
    top       (token id, log p) of the best tokens, best first, where the request asked for them
    """

    accepted: tuple[int, ...]
    pick: int
    weight: tuple[float, ...] = ()
    logprob: float = float("nan")
    top: Top = ()


class Acceptance(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def lossless(self) -> bool: ...

    @property
    def path_weight(self) -> float:
        """What log p counts against length when paths are compared (verify/walk.py); 0: length alone, then log p."""
        ...

    def after(self, offered: int, accepted: int) -> Acceptance:
        """The rule of the next step, after one that offered and accepted so many depths. Most stay as they are."""
        ...

    def decide(self, scores: Scores, node: int, children: Sequence[tuple[int, int]], history: Sequence[int]) -> Verdict:
        """Judge one visited node.

        children  (node index, token id) of the node's children
        history   prompt + output + tokens of the path from the root to `node`, both included; its length is the
                  absolute position of the token being decided
        """
        ...


@runtime_checkable
class Guide(Protocol):
    """A rule that knows something of the answer before the model is asked."""

    def guided(self, draft: Draft, history: Sequence[int]) -> Draft:
        """The draft without nodes that the rule would never accept, and with tokens that it expects. history: the row's
        ids up to and including the root."""
        ...


def guide(rule: Acceptance, draft: Draft, history: Sequence[int]) -> Draft:
    """Let the rule improve a draft, if it is one that does."""
    return rule.guided(draft, history) if isinstance(rule, Guide) else draft
