"""The seam `TreePolicy`: which nodes of the drafts are verified. Decided before anything is known of the answer.

Every policy hands out one `Topology` object per shape and keeps it, so that a runtime can cache masks by identity.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np

from medusakit.tree.cost import Rate, StepCost
from medusakit.tree.topology import Beam, Draft, FloatArray, Shape, Topology, Tree

MAX_KEPT_SHAPES = 512


@runtime_checkable
class TreePolicy(Protocol):
    @property
    def shape(self) -> Shape:
        """What the drafter grows for this policy."""
        ...

    def select(self, drafts: Sequence[Draft], rooms: Sequence[int], context: int) -> list[Tree]:
        """Per draft, a connected part of it with at most its room's nodes, root included; 1 is plain decoding.

        context  positions that the longest row holds: what a node costs depends on it
        """
        ...


class Shapes:
    """Topologies of parts of drafts, one object for each shape."""

    def __init__(self) -> None:
        self._kept: dict[tuple[int, ...], Topology] = {}

    def tree(self, draft: Draft, order: Sequence[int]) -> Tree:
        """The nodes `order` of the draft, root first, each after its parent."""
        new_index = {node: index for index, node in enumerate(order)}
        old_parents = draft.topology.parents.tolist()
        parents = (-1, *(new_index[old_parents[node]] for node in order[1:]))
        known = self._kept.get(parents)
        if known is None:
            if len(self._kept) >= MAX_KEPT_SHAPES:
                self._kept.clear()
            known = self._kept[parents] = Topology.from_parents(parents)
        return Tree(known, draft.tokens[order])


class StaticPolicy:
    """The same tree at every step, calibrated or dense; less room takes its first nodes. Of a draft whose nodes a
    grammar has changed, the most probable paths, as many nodes as the tree has.

    topology  nodes in the order of their worth (calibrated) or level by level (dense): every prefix is a tree
    """

    def __init__(self, topology: Topology) -> None:
        self._topology = topology
        self._prefixes: dict[int, Topology] = {}
        self._shapes = Shapes()

    @property
    def shape(self) -> Topology:
        return self._topology

    def select(self, drafts: Sequence[Draft], rooms: Sequence[int], context: int) -> list[Tree]:
        return [self._tree(draft, room) for draft, room in zip(drafts, rooms, strict=True)]

    def _tree(self, draft: Draft, room: int) -> Tree:
        num_nodes = max(1, min(room, self._topology.num_nodes))
        if draft.topology is not self._topology:
            return self._shapes.tree(draft, best_first(draft, num_nodes).order)
        prefix = self._prefixes.get(num_nodes)
        if prefix is None:
            prefix = self._prefixes[num_nodes] = self._topology.prefix(num_nodes)
        return Tree(prefix, draft.tokens[:num_nodes])


class DynamicPolicy:
    """Per step, the most probable paths of the drafts: best first by path probability, within room and `max_leaves`.

    A flat distribution so gets siblings, a peaked one gets depth: the expansion follows the entropy by itself.

    beam        what the drafter grows
    max_leaves  leaves of a tree at most, None: no limit
    cost        if given, trees end where further nodes cost more than they are worth: the n that maximises expected
                tokens - rate x (T(rows x n, context) + draft_s + other_s). All rows of a pass are as wide as the
                widest, so the n is one for all
    rate        tokens a second of late, kept up to date here and read by drafters that weigh their own time
    """

    def __init__(
        self,
        beam: Beam,
        *,
        max_leaves: int | None = None,
        cost: StepCost | None = None,
        draft_s: float = 0.0,
        other_s: float = 0.0,
        rate: Rate | None = None,
    ) -> None:
        self._shape = beam
        self._max_leaves = max_leaves
        self._cost = cost
        self._draft_s, self._other_s = draft_s, other_s
        self._rate = rate or Rate()
        self._shapes = Shapes()

    @property
    def shape(self) -> Beam:
        return self._shape

    def select(self, drafts: Sequence[Draft], rooms: Sequence[int], context: int) -> list[Tree]:
        ranked = [best_first(draft, room, self._max_leaves) for draft, room in zip(drafts, rooms, strict=True)]
        width = None
        if self._cost is not None:
            width = self._width([nodes.gains for nodes in ranked], self._cost, context)
        return [self._shapes.tree(draft, nodes.order[:width]) for draft, nodes in zip(drafts, ranked, strict=True)]

    def _width(self, gains: Sequence[FloatArray], cost: StepCost, context: int) -> int:
        """Nodes of every row that pay, root included."""
        most = 1 + max(len(row) for row in gains)
        tokens = np.full(most, float(len(gains)))
        for row in gains:
            tokens[1 : len(row) + 1] += np.cumsum(row)
            tokens[len(row) + 1 :] += row.sum()
        seconds = cost.curve(most, context, len(gains)) + self._draft_s + self._other_s
        rate = self._rate.value
        worth = tokens / seconds if rate is None else tokens - rate * seconds
        best = int(worth.argmax())
        self._rate.node_s = float(seconds[-1] - seconds[0]) / max(1, most - 1)
        self._rate.add(float(tokens[best]), float(seconds[best]))
        return best + 1


class Ordered(NamedTuple):
    """Nodes of a draft in the order in which they are taken, root first, and the path probability of the others."""

    order: list[int]
    gains: FloatArray


def best_first(draft: Draft, room: int, max_leaves: int | None = None) -> Ordered:
    """The most probable paths, each node after its parent.

    A child is never more probable than its parent, so the order itself keeps the choice connected; only a node that
    `max_leaves` refused has to take its descendants with it.
    """
    path_logprobs = draft.path_logprobs()
    by_worth = np.argsort(-path_logprobs[1:], kind="stable") + 1
    if max_leaves is None:
        order = by_worth[: max(0, room - 1)].tolist()
    else:
        order = _with_few_leaves(by_worth.tolist(), draft.topology.parents.tolist(), room, max_leaves)
    return Ordered([0, *order], np.exp(path_logprobs[order]))


def _with_few_leaves(by_worth: Sequence[int], parents: Sequence[int], room: int, max_leaves: int) -> list[int]:
    order, inner, num_leaves = list[int](), set[int](), 0
    members = {0}
    for node in by_worth:
        if len(members) >= room:
            break
        parent = parents[node]
        new_leaf = parent == 0 or parent in inner  # otherwise the parent stops being a leaf and the node becomes one
        if parent not in members or (new_leaf and num_leaves >= max_leaves):
            continue
        order.append(node)
        members.add(node)
        inner.add(parent)
        num_leaves += new_leaf
    return order
