"""The shape of a token tree and its values: `Topology`, `Tree`, `Draft`, and what a drafter may be asked for: `Shape`.

Knows nothing of models, drafters or acceptance. Node 0 is the root (the token already decided); every node comes after
its parent; a node's depth is its distance from the root and its position is `length + depth`.

>>> shape = Topology.from_rank_paths([(0,), (1,), (0, 0)])
>>> shape.parents.tolist(), shape.depths.tolist()
([-1, 0, 0, 1], [0, 1, 1, 2])
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float32]
BoolArray = NDArray[np.bool_]
RankPath = tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Topology:
    """Parents, depths and sibling ranks of n nodes, root included. Immutable, so masks are computed once and kept.

    parents  [n] int64, parents[0] = -1, parents[i] < i
    depths   [n] int64, depths[0] = 0
    ranks    [n] int64, the node's rank among the drafter's guesses under its parent (root: 0)
    """

    parents: IntArray
    depths: IntArray
    ranks: IntArray

    @classmethod
    def from_parents(cls, parents: Sequence[int], ranks: Sequence[int] | None = None) -> Topology:
        """Depths (and, if absent, ranks in sibling order) follow from the parents. Raises ValueError if not a tree."""
        depths = [0]
        seen: dict[int, int] = {}
        own_ranks = [0]
        if not parents or parents[0] != -1:
            raise ValueError("node 0 must be the root, with parent -1")
        for node, parent in enumerate(parents[1:], start=1):
            if not 0 <= parent < node:
                raise ValueError(f"node {node} has parent {parent}: every node comes after its parent")
            depths.append(depths[parent] + 1)
            own_ranks.append(seen.get(parent, 0))
            seen[parent] = seen.get(parent, 0) + 1
        return cls(_ints(parents), _ints(depths), _ints(own_ranks if ranks is None else ranks))

    @classmethod
    def from_rank_paths(cls, paths: Iterable[RankPath]) -> Topology:
        """A tree from rank paths in order, e.g. (0,), (1,), (0, 0). Each path's parent must come before it."""
        index: dict[RankPath, int] = {(): 0}
        parents, ranks = [-1], [0]
        for path in paths:
            if not path or path in index or path[:-1] not in index:
                raise ValueError(f"rank path {path} is empty, repeated, or comes before its parent")
            parents.append(index[path[:-1]])
            ranks.append(path[-1])
            index[path] = len(parents) - 1
        return cls.from_parents(parents, ranks)

    @classmethod
    def chain(cls, depth: int) -> Topology:
        """Root and one node per depth; `chain(0)` is plain decoding."""
        return cls.from_parents(list(range(-1, depth)))

    @classmethod
    def dense(cls, widths: Sequence[int]) -> Topology:
        """All of `widths[d]` children under every node of depth d, level by level (the D x B trees)."""
        parents, ranks, level = [-1], [0], [0]
        for width in widths:
            new_level = []
            for parent in level:
                for rank in range(width):
                    new_level.append(len(parents))
                    parents.append(parent)
                    ranks.append(rank)
            level = new_level
        return cls.from_parents(parents, ranks)

    @property
    def num_nodes(self) -> int:
        """Rows of a pass, root included."""
        return len(self.parents)

    @cached_property
    def is_tree(self) -> bool:
        """Node 0 is the root, every other node comes after its parent and one deeper. True of all that is built by the
        constructors above; a drafter may have built its own."""
        parents, depths, nodes = self.parents, self.depths, np.arange(1, self.num_nodes)
        if not self.num_nodes or len(depths) != self.num_nodes or parents[0] != -1 or depths[0] != 0:
            return False
        above = parents[1:]
        return bool(((above >= 0) & (above < nodes)).all() and (depths[1:] == depths[above] + 1).all())

    @cached_property
    def max_depth(self) -> int:
        return int(self.depths.max())

    @cached_property
    def children(self) -> tuple[tuple[int, ...], ...]:
        """children[i]: the nodes whose parent is i, in order."""
        lists: list[list[int]] = [[] for _ in range(self.num_nodes)]
        for node, parent in enumerate(self.parents.tolist()):
            if parent >= 0:
                lists[parent].append(node)
        return tuple(tuple(nodes) for nodes in lists)

    @cached_property
    def ancestors(self) -> BoolArray:
        """[n, n] bool: ancestors[i, j] is True where node i sees node j (its ancestors and itself)."""
        sees = np.eye(self.num_nodes, dtype=np.bool_)
        for node, parent in enumerate(self.parents.tolist()):
            if parent >= 0:
                sees[node] |= sees[parent]
        sees.setflags(write=False)
        return sees

    @cached_property
    def rank_paths(self) -> tuple[RankPath, ...]:
        """Rank path of every node; the root's is ()."""
        paths: list[RankPath] = [()]
        for parent, rank in zip(self.parents[1:].tolist(), self.ranks[1:].tolist(), strict=True):
            paths.append((*paths[parent], rank))
        return tuple(paths)

    def path(self, node: int) -> list[int]:
        """Nodes from the root to `node`, both included."""
        nodes = [node]
        while (parent := int(self.parents[nodes[-1]])) >= 0:
            nodes.append(parent)
        return nodes[::-1]

    def prefix(self, num_nodes: int) -> Topology:
        """The first `num_nodes` nodes, which are a tree again because parents come first."""
        if num_nodes >= self.num_nodes:
            return self
        return Topology(self.parents[:num_nodes], self.depths[:num_nodes], self.ranks[:num_nodes])


def _ints(values: Sequence[int]) -> IntArray:
    return np.array(values, dtype=np.int64)


@dataclass(frozen=True, slots=True)
class Tree:
    """What one verify pass runs: a topology with a token at every node. tokens [n] int64, tokens[0] is the root."""

    topology: Topology
    tokens: IntArray

    @classmethod
    def plain(cls, root_id: int) -> Tree:
        return cls(PLAIN, np.array([root_id], dtype=np.int64))

    @classmethod
    def chain(cls, ids: Sequence[int]) -> Tree:
        """One path, ids[0] the root."""
        return cls(Topology.chain(len(ids) - 1), np.array(ids, dtype=np.int64))

    @property
    def num_nodes(self) -> int:
        return self.topology.num_nodes


@dataclass(frozen=True, slots=True)
class Draft:
    """A drafter's proposal: a candidate trie with node 0 the root.

    tokens    [m] int64
    logprobs  [m] float32, log-probability of the node's token given its path (root: 0.0)
    evidence  how much the whole draft rests on, where a drafter can say (tokens of text that matched); sources whose
              probabilities are calibrated as they run are calibrated by it
    """

    topology: Topology
    tokens: IntArray
    logprobs: FloatArray = field(repr=False)
    evidence: int = 0

    @classmethod
    def plain(cls, root_id: int) -> Draft:
        """No guess: the root alone."""
        return cls(PLAIN, np.array([root_id], np.int64), np.zeros(1, np.float32))

    def path_logprobs(self) -> FloatArray:
        """[m] float32: log-probability of the whole path to each node."""
        total = self.logprobs.copy()
        for node, parent in enumerate(self.topology.parents.tolist()):
            if parent > 0:
                total[node] += total[parent]
        return total


@dataclass(frozen=True, slots=True)
class Beam:
    """Grow freely: at depth d keep the widths[d - 1] most probable nodes by path probability (dynamic trees).

    branching  children looked at under one parent
    least      a further level is drafted only while some path so far is at least so probable; a drafter whose levels
               come all at once, or cost nothing, may ignore it
    """

    widths: tuple[int, ...]
    branching: int = 8
    least: float = 0.0


# What a policy asks a drafter to grow: exactly these nodes, or a beam.
Shape = Topology | Beam

PLAIN = Topology.chain(0)
