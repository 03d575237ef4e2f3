"""Dynamic acceptance (docs/decisions/0009): lossy, and labelled so wherever it shows.

Over the request's newest 64 steps that drafted: rho = accepted depths / offered depths, D = mean depth offered,
rho_eff = 1 - (1 - rho)^D. A child is judged as typical acceptance judges it, at t times the request's temperature,
t = max(0.7, 1 - 0.3 rho_eff). Of the acceptable paths the one with the largest depth + 0.15 * sum of log p is kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from medusakit.runtimes.base import Scores
from medusakit.tree.search import rho_eff
from medusakit.verify.base import Verdict
from medusakit.verify.typical import TypicalRule

WINDOW = 64  # steps: a round of the circuit breaker
COLDEST = 0.7
SLOPE = 0.3


@dataclass(frozen=True, slots=True)
class DynamicRule:
    """typical: the rule at the request's own temperature. steps: (offered, accepted) depths, newest last.

    Log-probabilities are those at the verify temperature.
    """

    typical: TypicalRule
    steps: tuple[tuple[int, int], ...] = ()
    name: str = "dynamic"
    lossless: bool = False
    path_weight: float = 0.15

    @property
    def verify_temperature(self) -> float:
        """t, a factor of the request's temperature: 1 before the first step, lower the more is accepted."""
        if not self.steps:
            return 1.0
        offered, accepted = (sum(depths) for depths in zip(*self.steps, strict=True))
        return max(COLDEST, 1.0 - SLOPE * rho_eff(accepted / offered, offered / len(self.steps)))

    def decide(self, scores: Scores, node: int, children: Sequence[tuple[int, int]], history: Sequence[int]) -> Verdict:
        own = self.typical.filter
        colder = replace(own, temperature=own.temperature * self.verify_temperature)
        return replace(self.typical, filter=colder).decide(scores, node, children, history)

    def after(self, offered: int, accepted: int) -> DynamicRule:
        """Steps that offered nothing say nothing about acceptance."""
        return replace(self, steps=(*self.steps, (offered, accepted))[-WINDOW:]) if offered else self
