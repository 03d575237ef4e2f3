"""Which shapes are prepared: a pass is padded to the next larger number of rows, of nodes a row, and of cells.

Few sizes, since each takes a capture and some tenths of a second when it is first met. What is padded costs little: up
to dozens of rows a device's pass is bound by reading the weights.
"""

from __future__ import annotations

from typing import NamedTuple

NODES = (1, 4, 8, 16, 32, 64)
MAX_NODES = NODES[-1]  # a node's ancestors are the bits of one 64-bit number
FEWEST_CELLS = 256  # that attention reads
FIRST_CELLS = 1024  # that a row's buffers begin with
ALIGNED = 64  # cells: what attention kernels like


class Bucket(NamedTuple):
    """rows: slots 0 .. rows - 1; nodes of each; cells: of each slot that attention reads."""

    rows: int
    nodes: int
    cells: int


def nodes_bucket(nodes: int) -> int | None:
    """The prepared size for so many nodes; None where there is none.

    >>> nodes_bucket(3), nodes_bucket(64), nodes_bucket(65)
    (4, 64, None)
    """
    return next((size for size in NODES if nodes <= size), None)


def rows_bucket(rows: int, most: int) -> int:
    """
    >>> [rows_bucket(rows, 6) for rows in range(1, 7)]
    [1, 2, 4, 4, 6, 6]
    """
    return min(_power(rows), most)


def cells_bucket(cells: int, most: int) -> int:
    """Powers of two and what lies half-way between: what is read in vain is a third at most.

    >>> [cells_bucket(cells, 5000) for cells in (9, 257, 384, 385, 700, 4500)]
    [256, 384, 384, 512, 768, 5000]
    """
    power = _power(max(cells, FEWEST_CELLS))
    between = power * 3 // 4
    return min(between if FEWEST_CELLS < cells <= between else power, most)


def capacity(cells: int, most: int) -> int:
    """Cells that buffers are made with, for at least `cells`: doubling, so that they move rarely.

    >>> capacity(3, 9000), capacity(1025, 9000), capacity(8193, 9000)
    (1024, 2048, 9000)
    """
    return min(_power(max(cells, FIRST_CELLS)), most)


def _power(number: int) -> int:
    return 1 << (number - 1).bit_length()
