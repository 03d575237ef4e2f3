"""Cosine and sine tables of rotary embeddings, with every frequency scaling the families use. Pure NumPy, float64 inside."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from medusakit.models.spec import RopeSpec
from medusakit.tree.topology import FloatArray

Frequencies = NDArray[np.float64]


def rope_tables(rope: RopeSpec, num_positions: int, *, max_context: int) -> tuple[FloatArray, FloatArray]:
    """(cos, sin), each [num_positions, rope.dim / 2] float32, the attention factor of yarn and longrope included.

    `max_context` decides between longrope's short and long factors once and for all: a table that switched in the middle of
    a generation would leave earlier keys rotated by the other one.
    """
    angles = np.outer(np.arange(num_positions, dtype=np.float64), frequencies(rope, max_context))
    scale = attention_factor(rope, max_context)
    return (np.cos(angles) * scale).astype(np.float32), (np.sin(angles) * scale).astype(np.float32)


def frequencies(rope: RopeSpec, max_context: int) -> Frequencies:
    """[rope.dim / 2] radians per position."""
    base = rope.theta ** (-np.arange(0, rope.dim, 2, dtype=np.float64) / rope.dim)
    if rope.divisors:
        return np.asarray(base / np.asarray(rope.divisors))
    if rope.scaling == "linear":
        return np.asarray(base / rope.factor)
    if rope.scaling == "llama3":
        return _llama3(rope, base)
    if rope.scaling == "yarn":
        return _yarn(rope, base)
    if rope.scaling == "longrope":
        long = max_context > rope.original_context
        return np.asarray(base / np.asarray(rope.long_factors if long else rope.short_factors))
    return np.asarray(base)


def attention_factor(rope: RopeSpec, max_context: int) -> float:
    """What cos and sin are multiplied by: 1 unless yarn or longrope ask for more."""
    if rope.attention_factor is not None:
        return rope.attention_factor
    if rope.scaling == "yarn":
        return 0.1 * math.log(rope.factor) + 1.0 if rope.factor > 1 else 1.0
    if rope.scaling == "longrope" and rope.factor > 1:
        return math.sqrt(1 + math.log(rope.factor) / math.log(rope.original_context))
    return 1.0


def _llama3(rope: RopeSpec, base: Frequencies) -> Frequencies:
    """Long wavelengths are stretched by `factor`, short ones kept, those between blended (Llama 3.1's model card)."""
    wavelength = 2 * math.pi / base
    low = rope.original_context / rope.low_freq_factor
    high = rope.original_context / rope.high_freq_factor
    smooth = (rope.original_context / wavelength - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor)
    blended = (1 - smooth) * base / rope.factor + smooth * base
    return np.where(wavelength > low, base / rope.factor, np.where(wavelength < high, base, blended))


def _yarn(rope: RopeSpec, base: Frequencies) -> Frequencies:
    """YaRN (arXiv 2309.00071), eq. 17 to 23: a ramp over dimensions between interpolation and extrapolation."""
    def dimension(rotations: float) -> float:
        return rope.dim * math.log(rope.original_context / (rotations * 2 * math.pi)) / (2 * math.log(rope.theta))

    low = max(math.floor(dimension(rope.beta_fast)), 0)
    high = min(math.ceil(dimension(rope.beta_slow)), rope.dim - 1)
    ramp = np.clip((np.arange(rope.dim // 2) - low) / max(high - low, 1e-3), 0, 1)
    return base / rope.factor * ramp + base * (1 - ramp)
