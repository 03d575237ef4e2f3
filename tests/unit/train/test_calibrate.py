"""What is measured on held-out answers, on ranks made up for the purpose."""

from __future__ import annotations

import numpy as np
import pytest

from medusakit.train.calibrate import MISSED, Ranks, calibrated_tree, expected_tau
from medusakit.tree.search import NOT_COMPARED

# four places, two depths; the last answer ends after depth 1
RANKS = np.array([[0, 0], [0, 1], [1, 0], [MISSED, 0], [0, NOT_COMPARED]], np.int32)


def ranks_of(ranks: np.ndarray, best: float = -0.5) -> Ranks:
    return Ranks(ranks, np.full(ranks.shape, best, np.float32))


def test_top_k_counts_only_places_that_have_a_label() -> None:
    assert ranks_of(RANKS).top_k(1) == pytest.approx([3 / 5, 3 / 4])
    assert ranks_of(RANKS).top_k(2) == pytest.approx([4 / 5, 1.0])


def test_acceptance_is_joint() -> None:
    """(0, 0) is accepted at one of the four places that go on, though its marginals are 3/5 and 3/4."""
    tree = calibrated_tree(ranks_of(RANKS), 8)
    accepted = {node.path: node.acceptance for node in tree.nodes}
    assert accepted[(0,)] == pytest.approx(3 / 5)
    assert accepted[(0, 0)] == accepted[(0, 1)] == accepted[(1, 0)] == pytest.approx(1 / 4)
    assert expected_tau(tree, 1) == 1.0
    assert expected_tau(tree, 3) == pytest.approx(1 + 3 / 5 + 1 / 4)


def test_every_prefix_is_a_tree() -> None:
    rng = np.random.default_rng(0)
    ranks = np.minimum(rng.geometric(0.5, (400, 4)) - 1, 9).astype(np.int32)
    tree = calibrated_tree(ranks_of(ranks), 20)
    seen = {()}
    for node in tree.nodes:
        assert node.path[:-1] in seen
        assert node.path[-1] == 0 or (*node.path[:-1], node.path[-1] - 1) in seen
        seen.add(node.path)
    gains = [node.acceptance for node in tree.nodes]
    assert gains == sorted(gains, reverse=True)


def test_exponents_make_the_drafters_sureness_true() -> None:
    """It says exp(-0.5) = 0.61 everywhere; of 1,000 guesses 370 were right, which is exp(-0.5) ** 1.99."""
    ranks = np.ones((1000, 1), np.int32)
    ranks[:370] = 0
    (exponent,) = ranks_of(ranks).exponents()
    assert np.exp(-0.5) ** exponent == pytest.approx(0.37, rel=1e-3)
