"""Attention bias of one pass: 0 where a node may look, very negative elsewhere."""

from __future__ import annotations

import numpy as np

from medusakit.runtimes.onnx.cells import cell_of, open_held
from medusakit.tree.topology import BoolArray, FloatArray, IntArray

CLOSED = np.float32(-1e9)  # finite, so that no score can become NaN; exp() of it is 0 exactly


def write_bias(
    out: FloatArray, length: int, cells: IntArray, ancestors: BoolArray, depths: IntArray, window: int
) -> None:
    """Fill out [n, all cells]: a node sees the first `length` positions and its ancestors, itself included.

    cells, depths  [n], of the nodes;  ancestors [n, n]
    window         0, or position p is seen from position q only while q - p < window
    """
    out[:] = CLOSED
    open_held(out, length)
    out[:, cells] = np.where(ancestors, np.float32(0), CLOSED)
    if window:
        _close_window(out, length, cells, depths, window)


def _close_window(out: FloatArray, length: int, cells: IntArray, depths: IntArray, window: int) -> None:
    for node, depth in enumerate(depths.tolist()):
        out[node, : cell_of(min(length, max(0, length + depth + 1 - window)))] = CLOSED
    if int(depths.max()) >= window:
        left = depths[:, None] - depths[None, :] >= window
        out[:, cells] = np.where(left, CLOSED, out[:, cells])
