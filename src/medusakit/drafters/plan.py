"""How a shape is grown level by level, and how the levels' tables become a `Draft`.

A drafter answers a level with tables [rows, parents, branching] of draft ids and log-probabilities: the best guesses
under every expanded node, in order. Which guess becomes which node is arithmetic on indices, so one graph serves
every tree.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from medusakit.errors import UsageError
from medusakit.tree.topology import Beam, Draft, FloatArray, IntArray, Topology

Table = tuple[IntArray, FloatArray]
"""Token ids and log-probs [parents, branching] of one row's level."""


@dataclass(frozen=True, slots=True)
class Level:
    """Nodes of one depth: their indices in the topology, the place of each one's parent among the expanded nodes of the
    depth before, its rank, and which of them are expanded in turn (places within this level)."""

    nodes: IntArray
    parent_places: IntArray
    ranks: IntArray
    expanded: IntArray

    @property
    def branching(self) -> int:
        """Guesses needed under each expanded node of the depth before."""
        return int(self.ranks.max()) + 1

    def flat(self) -> IntArray:
        """[m] place of each node in a flattened [parents * branching] table."""
        return self.parent_places * self.branching + self.ranks


def plan_levels(shape: Topology, *, max_depth: int, vocab_size: int) -> tuple[Level, ...]:
    """The levels of a static shape. Raises UsageError if it is deeper than the drafter or wider than its vocabulary."""
    if shape.max_depth > max_depth:
        raise UsageError(
            f"the tree is {shape.max_depth} deep, but the drafter guesses {max_depth} tokens ahead",
            hint=f"a tree of depth {max_depth} or less: medusa tree search --heads HEADS",
        )
    if int(shape.ranks.max()) >= vocab_size:
        raise UsageError(
            f"the tree asks for guess {int(shape.ranks.max()) + 1} under one node, but the drafter has a "
            f"vocabulary of {vocab_size}",
            hint="a narrower tree",
        )
    has_child = np.zeros(shape.num_nodes, np.bool_)
    has_child[shape.parents[1:]] = True
    place = np.zeros(shape.num_nodes, np.int64)
    levels = []
    for depth in range(1, shape.max_depth + 1):
        nodes = np.flatnonzero(shape.depths == depth)
        expanded = np.flatnonzero(has_child[nodes])
        place[nodes[expanded]] = np.arange(len(expanded))
        levels.append(Level(nodes, place[shape.parents[nodes]], shape.ranks[nodes], expanded))
    return tuple(levels)


def check_beam(beam: Beam, *, max_depth: int) -> None:
    """Raises UsageError for widths that cannot be grown."""
    if len(beam.widths) > max_depth:
        raise UsageError(
            f"the beam has {len(beam.widths)} levels, but the drafter guesses {max_depth} tokens ahead",
            hint=f"{max_depth} widths or fewer",
        )
    if not beam.widths or min(beam.widths) < 1 or beam.branching < 1:
        raise UsageError(
            f"beam widths {beam.widths} with branching {beam.branching}: every one must be at least 1",
            hint="widths from 1, e.g. (4, 4, 2), and a branching from 1",
        )


def beam_sizes(beam: Beam, vocab_size: int) -> tuple[int, tuple[int, ...]]:
    """Guesses per node and nodes per level, cut to what a small vocabulary can give."""
    branching = min(beam.branching, vocab_size)
    widths, parents = [], 1
    for width in beam.widths:
        parents = min(width, parents * branching)
        widths.append(parents)
    return branching, tuple(widths)


def draft_of_topology(shape: Topology, levels: Sequence[Level], root_id: int, tables: Sequence[Table]) -> Draft:
    """A draft with exactly the nodes of `shape`. tables: one per level."""
    tokens = np.zeros(shape.num_nodes, np.int64)
    logprobs = np.zeros(shape.num_nodes, np.float32)
    tokens[0] = root_id
    for level, (ids, values) in zip(levels, tables, strict=True):
        tokens[level.nodes] = ids[level.parent_places, level.ranks]
        logprobs[level.nodes] = values[level.parent_places, level.ranks]
    return Draft(shape, tokens, logprobs)


def draft_of_beam(root_id: int, chosen: Sequence[IntArray], branching: int, tables: Sequence[Table]) -> Draft:
    """A trie of the nodes that a beam kept. chosen [width] per level: flat places in that level's table."""
    parents, ranks, depths = [np.array([-1])], [np.array([0])], [np.array([0])]
    tokens, logprobs = [np.array([root_id])], [np.zeros(1, np.float32)]
    first = 0  # index of the first node of the level before
    for depth, (places, (ids, values)) in enumerate(zip(chosen, tables, strict=True), start=1):
        parents.append(places // branching + first)
        ranks.append(places % branching)
        tokens.append(ids.reshape(-1)[places])
        logprobs.append(values.reshape(-1)[places])
        depths.append(np.full(len(places), depth))
        first = sum(len(part) for part in depths[:-1])
    joined = (np.concatenate(parts).astype(np.int64, copy=False) for parts in (parents, depths, ranks))
    return Draft(Topology(*joined), np.concatenate(tokens).astype(np.int64, copy=False), np.concatenate(logprobs))
