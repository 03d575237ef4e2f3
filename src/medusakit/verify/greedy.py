"""Greedy acceptance: a child is accepted if it carries the argmax. Exact at temperature 0."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from medusakit.runtimes.base import Scores
from medusakit.verify.base import Verdict
from medusakit.verify.processors import Adjustments


def carrying(children: Sequence[tuple[int, int]], token_id: int) -> tuple[int, ...]:
    """The child that carries the token, as the exact rules accept it: none or one."""
    for child, token in children:
        if token == token_id:
            return (child,)
    return ()


@dataclass(frozen=True, slots=True)
class GreedyRule:
    """Argmax of the adjusted logits, lowest id on ties. Without adjustments no logits are read at all."""

    adjustments: Adjustments | None = None
    name: str = "greedy"
    lossless: bool = True
    path_weight: float = 0.0

    def after(self, offered: int, accepted: int) -> GreedyRule:
        return self

    def decide(self, scores: Scores, node: int, children: Sequence[tuple[int, int]], history: Sequence[int]) -> Verdict:
        if self.adjustments is None:
            pick = scores.argmax(node)
        else:
            pick = int(self.adjustments.apply(scores.logits(node), history).argmax())
        return Verdict(carrying(children, pick), pick)
