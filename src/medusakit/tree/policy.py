"""The seam `TreePolicy`: which nodes of a draft are verified. Decided before anything is known of the answer.

Every policy hands out one `Topology` object per shape and keeps it, so that a runtime can cache masks by identity.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import numpy as np

from medusakit.tree.cost import StepCost, best_budget
from medusakit.tree.topology import Beam, Draft, FloatArray, Shape, Topology, Tree

MAX_KEPT_SHAPES = 512


@runtime_checkable
class TreePolicy(Protocol):
    @property
    def shape(self) -> Shape:
        """What the drafter grows for this policy."""
        ...

    def select(self, draft: Draft, budget: int) -> Tree:
        """A connected part of the draft with at most `budget` nodes, root included; budget 1 is plain decoding."""
        ...


class StaticPolicy:
    """The same tree at every step, calibrated or dense; a smaller budget takes its first nodes.

    topology  nodes in the order of their worth (calibrated) or level by level (dense): every prefix is a tree
    """

    def __init__(self, topology: Topology) -> None:
        self._topology = topology
        self._prefixes: dict[int, Topology] = {}

    @property
    def shape(self) -> Topology:
        return self._topology

    def select(self, draft: Draft, budget: int) -> Tree:
        num_nodes = max(1, min(budget, self._topology.num_nodes))
        prefix = self._prefixes.get(num_nodes)
        if prefix is None:
            prefix = self._prefixes[num_nodes] = self._topology.prefix(num_nodes)
        return Tree(prefix, draft.tokens[:num_nodes])


class DynamicPolicy:
    """Per step, the most probable paths of a beam: best first by path probability, within budget and `max_leaves`.

    widths      nodes the drafter keeps per depth; branching: children it looks at under one node
    max_leaves  leaves of the tree at most, None: no limit
    exponents   per depth, calibration of the drafter: p ** exponent is the acceptance that was measured where it said p
                (above 1 tames a drafter that is too sure of itself); missing depths are taken as they are
    cost        if given, the tree stops where (1 + sum of path probabilities) / (T(n) + draft_s + other_s) is largest
    """

    def __init__(
        self,
        widths: Sequence[int],
        *,
        branching: int = 8,
        max_leaves: int | None = None,
        exponents: Sequence[float] = (),
        cost: StepCost | None = None,
        draft_s: float = 0.0,
        other_s: float = 0.0,
    ) -> None:
        self._shape = Beam(tuple(widths), branching)
        self._max_leaves = max_leaves
        self._exponents = np.array([1.0, *exponents, *[1.0] * (len(widths) - len(exponents))], dtype=np.float32)
        self._cost = cost
        self._draft_s = draft_s
        self._other_s = other_s
        self._kept_shapes: dict[tuple[int, ...], Topology] = {}

    @property
    def shape(self) -> Beam:
        return self._shape

    def select(self, draft: Draft, budget: int) -> Tree:
        path_logprobs = self._calibrated(draft)
        nodes = _best_first(draft.topology, path_logprobs, budget, self._max_leaves)
        if self._cost is not None:
            gains = np.exp(path_logprobs[nodes[1:]])
            nodes = nodes[: best_budget(gains, self._cost, self._draft_s, self._other_s).num_nodes]
        return Tree(self._topology(draft.topology, nodes), draft.tokens[nodes])

    def _calibrated(self, draft: Draft) -> FloatArray:
        scaled = draft.logprobs * self._exponents[draft.topology.depths]
        return Draft(draft.topology, draft.tokens, scaled).path_logprobs()

    def _topology(self, grown: Topology, nodes: list[int]) -> Topology:
        new_index = {node: index for index, node in enumerate(nodes)}
        parents = (-1, *(new_index[int(grown.parents[node])] for node in nodes[1:]))
        known = self._kept_shapes.get(parents)
        if known is None:
            if len(self._kept_shapes) >= MAX_KEPT_SHAPES:
                self._kept_shapes.clear()
            known = self._kept_shapes[parents] = Topology.from_parents(parents)
        return known


def _best_first(topology: Topology, path_logprobs: FloatArray, budget: int, max_leaves: int | None) -> list[int]:
    """Node indices, root first, each after its parent, in order of path probability.

    A child is never more probable than its parent, so the order itself keeps the choice connected; only a node that
    `max_leaves` refused has to take its descendants with it.
    """
    chosen, inner, num_leaves = [0], set[int](), 0
    members = {0}
    for node in np.argsort(-path_logprobs[1:], kind="stable").tolist():
        if len(chosen) >= budget:
            break
        parent = int(topology.parents[node + 1])
        new_leaf = parent == 0 or parent in inner  # otherwise the parent stops being a leaf and the node becomes one
        if parent not in members or (new_leaf and max_leaves is not None and num_leaves >= max_leaves):
            continue
        chosen.append(node + 1)
        members.add(node + 1)
        inner.add(parent)
        num_leaves += new_leaf
    return chosen
