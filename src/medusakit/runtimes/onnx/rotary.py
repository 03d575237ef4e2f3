"""Cosine and sine tables for the graph's rotary embedding."""

from __future__ import annotations

import numpy as np

from medusakit.models.rope import inverse_frequencies
from medusakit.models.spec import ModelSpec, RopeSpec
from medusakit.runtimes.onnx.heads import HeadLayout
from medusakit.tree.topology import FloatArray


def rotary_tables(spec: ModelSpec, num_positions: int, max_context: int) -> dict[str, FloatArray]:
    """Graph inputs cos and sin [num_positions, half], with cos_local and sin_local where there are two rotations.

    `max_context` decides between longrope's short and long factors once and for all: a table that switched in the
    middle of a generation would leave earlier keys rotated by the other one.
    """
    tables, half = {}, HeadLayout.of(spec).half
    for suffix, rope in (("", spec.rope), ("_local", spec.rope_local)):
        if rope is not None:
            for name, table in zip(("cos", "sin"), _tables(rope, num_positions, max_context), strict=True):
                tables[name + suffix] = np.pad(table, ((0, 0), (0, half - table.shape[1])))
    return tables


def _tables(rope: RopeSpec, num_positions: int, max_context: int) -> tuple[FloatArray, FloatArray]:
    per_position, scale = inverse_frequencies(rope, max_context)
    # the angle is rounded to float32 because that is what models were trained with; cos and sin of it are not
    angles = np.outer(np.arange(num_positions, dtype=np.float32), per_position).astype(np.float64)
    return (np.cos(angles) * scale).astype(np.float32), (np.sin(angles) * scale).astype(np.float32)
