"""Drafts of several sources as one trie: a path that two of them guess is one node."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from medusakit.drafters.hybrid.calibration import Calibration, Probs
from medusakit.tree.topology import Draft, IntArray, Topology


@dataclass(frozen=True, slots=True)
class Said:
    """A draft with what was said of its nodes, so that it can be judged once the text is there.

    probs    [m] float64, uncorrected probability of each node given its path (root: 1)
    buckets  [m] int64, where a calibration counts it
    """

    draft: Draft
    probs: Probs
    buckets: IntArray
    calibration: Calibration

    @classmethod
    def of(cls, draft: Draft, probs: Probs, kinds: int | IntArray, calibration: Calibration) -> Said:
        return cls(draft, probs, calibration.buckets(kinds, draft.topology.depths, probs), calibration)

    def corrected(self) -> Probs:
        return self.calibration.corrected(self.buckets, self.probs)

    def judge(self, came: Sequence[int]) -> list[int]:
        """Learn from the tokens that came after the root; the nodes of the draft that they went through."""
        node, path = 0, list[int]()
        tokens, probs, buckets = self.draft.tokens, self.probs, self.buckets
        children = self.draft.topology.children
        for token in came:
            found = -1
            for child in children[node]:
                right = int(tokens[child]) == token
                self.calibration.learn(int(buckets[child]), float(probs[child]), right)
                found = child if right else found
            if found < 0:
                break
            node = found
            path.append(node)
        return path


def merge(root_id: int, drafts: Sequence[tuple[Draft, Probs]]) -> tuple[Draft, Probs, IntArray]:
    """(trie, probs [m], masks [m]): bit s of a node's mask says that source s guessed it; its probability is the
    largest that any of them gives it. The trie's own log-probabilities are still to be set (they are 0)."""
    tokens, parents, depths, probs, masks = [root_id], [-1], [0], [1.0], [0]
    places: dict[tuple[int, int], int] = {}
    for source, (draft, said) in enumerate(drafts):
        mine = [0] * len(said)
        rows = zip(draft.topology.parents.tolist(), draft.tokens.tolist(), said.tolist(), strict=True)
        for node, (parent, token, prob) in enumerate(rows):
            if node == 0:
                continue
            key = mine[parent], token
            place = places.get(key)
            if place is None:
                place = places[key] = len(tokens)
                tokens.append(token)
                parents.append(key[0])
                depths.append(depths[key[0]] + 1)
                probs.append(prob)
                masks.append(1 << source)
            else:
                masks[place] |= 1 << source
                probs[place] = max(probs[place], prob)
            mine[node] = place
    topology = Topology(np.array(parents), np.array(depths), _sibling_ranks(parents))
    draft = Draft(topology, np.array(tokens, np.int64), np.zeros(len(tokens), np.float32))
    return draft, np.array(probs), np.array(masks)


def _sibling_ranks(parents: Sequence[int]) -> IntArray:
    seen: dict[int, int] = {}
    ranks = []
    for parent in parents:
        ranks.append(seen.get(parent, 0))
        seen[parent] = ranks[-1] + 1
    return np.array(ranks, np.int64)
