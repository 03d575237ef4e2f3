"""Stage 4, calibrate: how often each node of a tree would be accepted, measured on held-out answers of the model.

Under the exact greedy rule a drafted node is accepted when it carries the model's own next token after an accepted
parent, so along a greedy answer it is enough to know, for every place and depth, the rank of the true token given the
true path: a rank path is accepted jointly where all its ranks are those. Nothing is multiplied from marginals.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from medusakit.artifact.schema import CalibratedTree, TreeNode
from medusakit.errors import DatasetError
from medusakit.train.heads_data import Batch, epoch_batches, make_batch
from medusakit.train.loop import Backdrop
from medusakit.train.progress import Meter, OnProgress, ignore
from medusakit.train.shards import Sample
from medusakit.tree.search import NOT_COMPARED, JointCounts, grow
from medusakit.tree.topology import FloatArray

MISSED = 1 << 20  # rank of a label that the draft vocabulary lacks
_MAX_RANK = 32


@dataclass(frozen=True, slots=True)
class Ranks:
    """Of N places and D depths along true paths.

    ranks     [N, D] int32: rank of the true token (0 best), MISSED, or NOT_COMPARED past the answer's end
    best      [N, D] float32: log-probability that the drafter gives its own best guess there
    """

    ranks: NDArray[np.int32]
    best: FloatArray

    @property
    def depth(self) -> int:
        return int(self.ranks.shape[1])

    def top_k(self, k: int) -> list[float]:
        """Share of labels among the best k, per depth (given the true path)."""
        shares = []
        for column in self.ranks.T:
            labels = column[column != NOT_COMPARED]
            shares.append(float((labels < k).mean()) if len(labels) else 0.0)
        return shares

    def exponents(self) -> list[float]:
        """Per depth, x such that mean(best ** x) is the measured top-1 share: the drafter's sureness, corrected."""
        return [_exponent(self.best[:, depth], self.ranks[:, depth]) for depth in range(self.depth)]


def measure_ranks(
    net: nn.Module,
    samples: Sequence[Sample],
    backdrop: Backdrop,
    *,
    batch_rows: int = 900,
    on_progress: OnProgress = ignore,
) -> Ranks:
    """Run the drafter along held-out answers. Raises DatasetError if there are none with two tokens or more."""
    lengths = [sample.num_generated for sample in samples]
    batches = epoch_batches(lengths, batch_rows, np.random.default_rng(0))
    if not batches:
        raise DatasetError(
            "no held-out answers to calibrate on", hint="more answers, or a larger held_out in [heads] of the recipe"
        )
    meter, done, parts = Meter("calibrate", sum(lengths), on_progress), 0, []
    for indices in batches:
        batch = make_batch([samples[index] for index in indices])
        parts.append(_ranks_of(net, batch, backdrop))
        done += batch.num_rows
        meter.report(done)
    ranks = Ranks(np.concatenate([part[0] for part in parts]), np.concatenate([part[1] for part in parts]))
    meter.finish(done, f"top-1 by depth {' '.join(f'{share:.2f}' for share in ranks.top_k(1))}")
    return ranks


def _ranks_of(net: nn.Module, batch: Batch, backdrop: Backdrop) -> tuple[NDArray[np.int32], FloatArray]:
    places = batch.places()
    answer, row = (torch.from_numpy(part) for part in places)
    hidden = torch.from_numpy(batch.hidden).float()
    ranks, best = [], []
    own = getattr(net, "projection", None)
    with torch.no_grad():
        embedded = backdrop.embedding[torch.from_numpy(batch.tokens)]
        for head, states in enumerate(net(hidden, embedded, (answer, row))):
            _, label = batch.labels(places, head)
            logits = states @ (backdrop.head if own is None else own[head]).T
            place = backdrop.positions[torch.from_numpy(np.maximum(label, 0))]
            score = logits.gather(1, place.clamp(min=0)[:, None])
            rank = (logits > score).sum(1).numpy()
            rank[place.numpy() < 0] = MISSED
            ranks.append(np.where(label < 0, NOT_COMPARED, rank).astype(np.int32))
            best.append(torch.log_softmax(logits, -1).amax(-1).numpy())
    return np.stack(ranks, 1), np.stack(best, 1)


def calibrated_tree(ranks: Ranks, num_nodes: int = 63, data: str = "") -> CalibratedTree:
    """The `num_nodes` most accepted drafted nodes in greedy order (tree/search.py): every prefix is a tree.

    The gain of a node is its own joint acceptance, so 1 + the sum over a prefix is that tree's expected tau.
    """
    counts = JointCounts.from_ranks(ranks.ranks, _MAX_RANK)
    nodes = tuple(TreeNode(path=path, acceptance=acceptance) for path, acceptance in grow(counts, num_nodes + 1))
    return CalibratedTree(nodes=nodes, num_positions=counts.num_positions, data=data)


def expected_tau(tree: CalibratedTree, budget: int) -> float:
    """Tokens per step of the first budget - 1 drafted nodes, bonus included."""
    return 1.0 + sum(node.acceptance for node in tree.nodes[: budget - 1])


def _exponent(best: FloatArray, ranks: NDArray[np.int32]) -> float:
    """Bisection: mean(exp(x * best)) falls with x."""
    known = ranks != NOT_COMPARED
    if not known.any():
        return 1.0
    target, log_p = float((ranks[known] == 0).mean()), best[known].astype(np.float64)
    low, high = 0.05, 10.0
    for _ in range(40):
        middle = (low * high) ** 0.5
        low, high = (middle, high) if np.exp(middle * log_p).mean() > target else (low, middle)
    return round(float((low * high) ** 0.5), 4)
