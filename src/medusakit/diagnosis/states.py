"""Which hidden states the heads were made for: those after the final norm, or by mistake those on another side."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from medusakit.diagnosis.guesses import Change, Guesses, Trace, guess
from medusakit.drafters.base import Drafter
from medusakit.drafters.rows import rms_normalised
from medusakit.models.spec import WeightSource
from medusakit.tree.topology import FloatArray

_SCALES = tuple(2.0**power for power in range(-4, 9))


@dataclass(frozen=True, slots=True)
class Side:
    """A way to change the states, in words."""

    words: str
    change: Change


def best_side(drafter: Drafter, traces: Sequence[Trace], source: WeightSource) -> tuple[Side, Guesses]:
    """The wrong side of the norm with which the drafter guesses best."""
    found = [(side, guess(drafter, traces, side.change)) for side in sides(source)]
    return max(found, key=lambda pair: pair[1].rate())


def sides(source: WeightSource) -> Iterator[Side]:
    """After the norm h = w * x / rms(x), only the direction of x can be had back, so its length is tried."""
    weight = np.asarray(source.tensor("final_norm").f32(), np.float32)
    safe = np.where(np.abs(weight) < 1e-6, np.float32(1e-6), weight)

    def before(scale: float) -> Change:
        def change(hidden: FloatArray) -> FloatArray:
            scaled: FloatArray = rms_normalised(np.asarray(hidden / safe, np.float32)) * np.float32(scale)
            return scaled

        return change

    def twice(hidden: FloatArray) -> FloatArray:
        again: FloatArray = rms_normalised(hidden) * weight
        return again

    yield from (Side(f"before the final norm (length {scale:g} sqrt(d))", before(scale)) for scale in _SCALES)
    yield Side("normalised twice", twice)
