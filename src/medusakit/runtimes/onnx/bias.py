"""Attention bias of one pass: 0 where a node may look, very negative elsewhere.

The attention kernel masks causally by index in the KV buffer, and every node comes after its parent, so the bias only
closes the nodes that are no ancestors, and the positions that have left a sliding window (by position, not by index).
"""

from __future__ import annotations

import numpy as np

from medusakit.tree.topology import FloatArray, Topology

CLOSED = np.float32(-1e9)  # finite, so that no row of a softmax can become NaN; exp() of it is 0 exactly


def write_bias(out: FloatArray, length: int, topology: Topology, window: int) -> None:
    """Fill out [n or more, c]: a row a node; columns are positions 0 .. length - 1, then the nodes themselves."""
    n = topology.num_nodes
    out[:] = 0
    block = out[:n, length : length + n]
    np.copyto(block, CLOSED, where=~topology.ancestors)
    if window:
        _close_window(out, length, topology, window)


def write_chain_bias(out: FloatArray, length: int, num_nodes: int, window: int) -> None:
    """The same for a chain (prompts): only a window closes anything."""
    out[:] = 0
    for node in range(num_nodes if window else 0):
        out[node, : max(0, length + node + 1 - window)] = CLOSED


def _close_window(out: FloatArray, length: int, topology: Topology, window: int) -> None:
    """Position p is seen from position q while q - p < window."""
    depths = topology.depths
    for node, depth in enumerate(depths.tolist()):
        out[node, : min(length, max(0, length + depth + 1 - window))] = CLOSED
    if topology.max_depth >= window:
        n = topology.num_nodes
        np.copyto(out[:n, length : length + n], CLOSED, where=depths[:, None] - depths[None, :] >= window)
