"""Do the model's positions agree with those the heads were trained with? Another rotary embedding is another model:
answers repeat or drift, and guesses miss, though every weight is the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from medusakit.diagnosis.findings import Finding
from medusakit.diagnosis.guesses import Guesses, guess
from medusakit.models.spec import RopeSpec

if TYPE_CHECKING:
    from medusakit.diagnosis.artifact import Case

THETAS = (10_000.0, 100_000.0, 500_000.0, 1_000_000.0)
_CLEAR = 0.1


def position_findings(case: Case, recorded: RopeSpec | None, guesses: Guesses) -> Iterator[Finding]:
    """A record that differs is a fault by itself. Without one, usual values are tried where guesses are often wrong."""
    own = case.source.spec.rope
    if recorded is not None and recorded != own:
        rate = guess(case.drafter, case.answers(case.weights, recorded)).rate()
        evidence = f"trained with {told(recorded)}, the model has {told(own)}: right at {guesses.rate():.0%} of places"
        evidence += f", with the recorded positions at {rate:.0%}"
        yield Finding(
            "position", "error", evidence, "--align-position-embed, or the config.json the heads were trained with"
        )
    elif recorded is None and case.is_low(guesses):
        yield from _tried(case, own, guesses)


def told(rope: RopeSpec) -> str:
    scaling = "" if rope.scaling == "none" else f", {rope.scaling} scaling by {rope.factor:g}"
    return f"rope theta {rope.theta:,.0f}{scaling}"


def _tried(case: Case, own: RopeSpec, guesses: Guesses) -> Iterator[Finding]:
    candidates = [replace(own, theta=theta) for theta in THETAS if theta != own.theta]
    found = [(guess(case.drafter, case.answers(case.weights, rope)).rate(), rope) for rope in candidates]
    rate, best = max(found, key=lambda pair: pair[0])
    if rate > guesses.rate() + _CLEAR and rate > 1.5 * guesses.rate():
        evidence = f"right at {rate:.0%} of places with {told(best)}, at {guesses.rate():.0%} with {told(own)}"
        yield Finding("position", "error", evidence, f"in the model's config.json: rope_theta = {best.theta:.0f}")
