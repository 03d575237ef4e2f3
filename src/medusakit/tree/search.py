"""Which tree to verify: greedy growth by measured joint acceptance, and dense trees for comparison.

What is measured per position of held-out text: the rank that the true token had among the drafter's guesses at each
depth, given that the true path led there. A node, named by its rank path (r1, ..., rm), is accepted exactly where the
true ranks begin with r1, ..., rm, so joint acceptance is a count and needs no product of marginals.
"""

from __future__ import annotations

import heapq
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from medusakit.errors import UsageError
from medusakit.tree.topology import RankPath, Topology

NOT_COMPARED = -1  # the answer ended before this depth, so there was nothing to compare
MAX_DENSE_NODES = 1024


class ScoredPath(NamedTuple):
    """A node of a tree and the share of steps in which it is accepted."""

    path: RankPath
    acceptance: float


@dataclass(frozen=True, slots=True)
class JointCounts:
    """How often each rank path was the true one.

    accepted  per rank path, the positions where it was; paths that never were are absent
    compared  per depth (1, 2, ... at index 0, 1, ...), the positions that could be compared so far
    """

    accepted: Mapping[RankPath, int]
    compared: tuple[int, ...]

    @classmethod
    def from_ranks(cls, ranks: NDArray[np.integer], width: int) -> JointCounts:
        """From ranks [positions, depths]: 0 is the drafter's first guess, `width` or more a miss, NOT_COMPARED the end.

        A depth counts only where the depths above it do; misses end a path but stay in the number of comparisons.
        """
        accepted: dict[RankPath, int] = {}
        compared = []
        alive = np.ones(len(ranks), dtype=np.bool_)
        on_path = np.ones(len(ranks), dtype=np.bool_)
        for depth in range(ranks.shape[1]):
            alive &= ranks[:, depth] != NOT_COMPARED
            on_path &= alive & (ranks[:, depth] < width)
            compared.append(int(alive.sum()))
            paths, counts = np.unique(ranks[on_path, : depth + 1], axis=0, return_counts=True)
            accepted.update(zip(map(tuple, paths.tolist()), counts.tolist(), strict=True))
        return cls(accepted, tuple(compared))

    @property
    def max_depth(self) -> int:
        return len(self.compared)

    @property
    def num_positions(self) -> int:
        return self.compared[0] if self.compared else 0

    def acceptance(self, path: RankPath) -> float:
        """Share of comparisons at the node's depth in which the node was accepted; the root's is 1."""
        if not path:
            return 1.0
        if len(path) > self.max_depth or not self.compared[len(path) - 1]:
            return 0.0
        return self.accepted.get(path, 0) / self.compared[len(path) - 1]


def grow(counts: JointCounts, num_nodes: int) -> tuple[ScoredPath, ...]:
    """The best tree of `num_nodes` rows, root included: its num_nodes - 1 drafted nodes in the order they were added.

    Starts at the root and always adds the next sibling or the first child with the largest acceptance (ties: shallower,
    then lower ranks), so every prefix is itself a tree. Ends early where no candidate was ever accepted.
    """
    width = 1 + max((path[-1] for path in counts.accepted), default=0)
    frontier: list[tuple[float, int, RankPath]] = []

    def offer(path: RankPath) -> None:
        if len(path) <= counts.max_depth and path[-1] < width:
            heapq.heappush(frontier, (-counts.acceptance(path), len(path), path))

    offer((0,))
    grown: list[ScoredPath] = []
    while frontier and len(grown) < num_nodes - 1:
        loss, _, path = heapq.heappop(frontier)
        if loss == 0:
            break
        grown.append(ScoredPath(path, -loss))
        offer((*path[:-1], path[-1] + 1))
        offer((*path, 0))
    return tuple(grown)


def rho_eff(rho: float, depth: float) -> float:
    """1 - (1 - rho)^D: the chance that at least one of D depths is accepted if each were by itself, with chance rho.

    >>> round(rho_eff(0.5, 3), 3)
    0.875
    """
    return 1.0 - math.pow(1.0 - rho, depth)


def dense(depth: int, branching: int) -> Topology:
    """The D x B tree: `branching` children under every node of `depth` levels (B + B^2 + ... + B^D drafted nodes)."""
    if depth < 1 or branching < 1:
        raise UsageError(
            f"a dense tree of {depth}x{branching} has no nodes; depth and branching are 1 or more", hint="--tree 2x3"
        )
    drafted = 0
    for level in range(1, depth + 1):
        drafted += branching**level
        if drafted <= MAX_DENSE_NODES:
            continue
        raise UsageError(
            f"a dense tree of {depth}x{branching} drafts more than the {MAX_DENSE_NODES} nodes that are run at most",
            hint="a depth of 2 to 4 with 2 to 4 branches, e.g. 2x3",
        )
    return Topology.dense([branching] * depth)


def parse_dense(text: str) -> Topology:
    """`dense` from "DxB", e.g. "2x3": depth 2 with 3 children each."""
    match = re.fullmatch(r"\s*(\d{1,4})\s*[xX]\s*(\d{1,4})\s*", text)
    if match is None:
        raise UsageError(f"{text!r} is no dense tree; expected depth x branching", hint="--tree 2x3")
    return dense(int(match[1]), int(match[2]))


def dense_grid(depths: Sequence[int], branchings: Sequence[int]) -> Iterator[tuple[int, int, Topology]]:
    """Every D x B tree of a grid search, with its depth and branching."""
    for depth in depths:
        for branching in branchings:
            yield depth, branching, dense(depth, branching)
