"""Rotary frequencies of every scaling that a ModelSpec may carry."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from medusakit.models.spec import RopeSpec

Vector = NDArray[np.float64]


def inverse_frequencies(rope: RopeSpec, context_length: int) -> tuple[NDArray[np.float32], float]:
    """(inv_freq [dim / 2], scale): position p rotates pair i by p * inv_freq[i]; cos and sin are multiplied by `scale`.

    `context_length` is the longest sequence (prompt, answer, tree) that will be run: longrope picks its factors by it.
    Computed in float64 and rounded once.
    """
    plain = rope.theta ** -(np.arange(0, rope.dim, 2, dtype=np.float64) / rope.dim)
    if rope.scaling == "linear":
        scaled = plain / rope.factor
    elif rope.scaling == "llama3":
        scaled = plain / np.asarray(rope.divisors) if rope.divisors else _llama3(rope, plain)
    elif rope.scaling == "yarn":
        scaled = _yarn(rope, plain)
    elif rope.scaling == "longrope":
        long = context_length > rope.original_context
        scaled = plain / np.asarray(rope.long_factors if long else rope.short_factors)
    else:
        scaled = plain
    return scaled.astype(np.float32), _attention_scale(rope)


def _attention_scale(rope: RopeSpec) -> float:
    if rope.attention_factor is not None:
        return rope.attention_factor
    if rope.factor <= 1.0:
        return 1.0
    if rope.scaling == "yarn":  # YaRN (arXiv 2309.00071), eq. 22
        return 0.1 * math.log(rope.factor) + 1.0
    if rope.scaling == "longrope":  # LongRoPE (arXiv 2402.13753), as Phi-3 uses it
        return math.sqrt(1.0 + math.log(rope.factor) / math.log(rope.original_context))
    return 1.0


def _llama3(rope: RopeSpec, plain: Vector) -> Vector:
    """Long waves are stretched by `factor`, short ones kept, those between blended by how often they turn."""
    turns = rope.original_context * plain / (2 * math.pi)
    blend = np.clip((turns - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor), 0.0, 1.0)
    blended: Vector = (1.0 - blend) * plain / rope.factor + blend * plain
    return blended


def _yarn(rope: RopeSpec, plain: Vector) -> Vector:
    """YaRN (arXiv 2309.00071), section 3.2: a ramp over the pairs between `beta_fast` and `beta_slow` turns."""
    low = max(math.floor(_pair_turning(rope, rope.beta_fast)), 0)
    high = min(math.ceil(_pair_turning(rope, rope.beta_slow)), rope.dim - 1)
    span = high - low if high != low else 0.001
    ramp = np.clip((np.arange(rope.dim // 2) - low) / span, 0.0, 1.0)
    blended: Vector = plain / rope.factor * ramp + plain * (1.0 - ramp)
    return blended


def _pair_turning(rope: RopeSpec, turns: float) -> float:
    """The (fractional) pair that makes `turns` full turns over the original context."""
    return rope.dim * math.log(rope.original_context / (turns * 2 * math.pi)) / (2 * math.log(rope.theta))
