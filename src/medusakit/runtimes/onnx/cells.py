"""Cells: where positions lie in the KV memory, so that a tree's sums come out bit for bit as plain decoding's.

A product over positions is one chain of fused multiply-adds, cut every 1024 cells (see `attention`). A cell whose
weight is zero changes nothing, so siblings may lie between the nodes of a path; but a node must lie in the same block
of 1024 as its position will once it is committed. So positions leave the end of every block free for siblings.
"""

from __future__ import annotations

import numpy as np

from medusakit.tree.topology import FloatArray, IntArray

BLOCK = 1024
_SPARE = 128  # nodes of one tree that fit before a boundary; larger trees are exact up to rounding there
_HELD = BLOCK - _SPARE


def cell_of(position: int) -> int:
    return position + _SPARE * (position // _HELD)


def node_cells(length: int, depths: IntArray) -> IntArray:
    """Cells of a tree's (or chain's) nodes after `length` positions; along a path they increase."""
    first, block = cell_of(length), length // _HELD + 1
    beyond = depths >= block * _HELD - length
    count = len(depths) - int(np.count_nonzero(beyond))
    if count == len(depths) or first + count > block * BLOCK:
        return np.arange(first, first + len(depths))
    cells = np.empty(len(depths), np.int64)
    cells[~beyond] = np.arange(first, first + count)
    cells[beyond] = np.arange(block * BLOCK, block * BLOCK + len(depths) - count)
    return cells


def open_held(out: FloatArray, length: int) -> None:
    """Zero the columns of out [n, cells] that hold the first `length` positions."""
    for start in range(0, length, _HELD):
        cell = cell_of(start)
        out[:, cell : cell + min(_HELD, length - start)] = 0
