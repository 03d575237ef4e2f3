"""Joint counts and the trees grown from them."""

import numpy as np
import pytest

from medusakit.errors import UsageError
from medusakit.tree.search import (
    NOT_COMPARED,
    JointCounts,
    dense_grid,
    grow,
    parse_dense,
)
from medusakit.tree.topology import Topology

MISS = 99
RANKS = np.array([
    [0, 0, 0],
    [0, 0, MISS],
    [0, 1, NOT_COMPARED],
    [1, 0, 0],
    [MISS, 0, 0],
    [0, NOT_COMPARED, 0],
])  # fmt: skip


def counts_at_random(seed=0, positions=4000, depths=4, width=8):
    random = np.random.default_rng(seed)
    ranks = random.geometric(0.45, (positions, depths)) - 1
    # after a hit the next hit is likelier, which a product of marginals would miss
    ranks[:, 1:] = np.where((ranks[:, :-1] == 0) & (random.random((positions, depths - 1)) < 0.5), 0, ranks[:, 1:])
    ranks[random.random(ranks.shape) < 0.05] = NOT_COMPARED
    return ranks, JointCounts.from_ranks(ranks, width)


def naive_acceptance(ranks, path):
    """The share, row by row: of the rows that can be compared down to the node's depth, those that follow the path."""
    comparable = [row for row in ranks.tolist() if NOT_COMPARED not in row[: len(path)]]
    return sum(tuple(row[: len(path)]) == path for row in comparable) / len(comparable)


def test_each_depth_counts_over_its_own_comparisons():
    counts = JointCounts.from_ranks(RANKS, 4)
    assert counts.compared == (6, 5, 4)
    assert counts.num_positions == 6
    assert counts.accepted == {(0,): 4, (1,): 1, (0, 0): 2, (0, 1): 1, (1, 0): 1, (0, 0, 0): 1, (1, 0, 0): 1}
    assert counts.acceptance(()) == 1
    assert counts.acceptance((0, 0)) == 2 / 5
    assert counts.acceptance((0, 0, 0)) == 1 / 4
    assert counts.acceptance((3,)) == 0
    assert counts.acceptance((0, 0, 0, 0)) == 0


def test_acceptance_is_joint_and_not_a_product_of_marginals():
    ranks, counts = counts_at_random()
    for path in [(0,), (2,), (0, 0), (0, 1), (1, 0), (0, 0, 0), (0, 0, 0, 0), (3, 1, 0)]:
        assert counts.acceptance(path) == pytest.approx(naive_acceptance(ranks, path))
    marginal = counts.acceptance((0,)) * naive_acceptance(ranks[:, 1:], (0,))
    assert counts.acceptance((0, 0)) > 1.1 * marginal


def test_a_miss_is_compared_but_accepts_nothing():
    counts = JointCounts.from_ranks(np.array([[MISS, 0], [0, 0]]), 4)
    assert counts.compared == (2, 2)
    assert counts.acceptance((0, 0)) == 0.5


def test_no_positions_at_all():
    counts = JointCounts.from_ranks(np.empty((0, 3), dtype=np.int64), 4)
    assert counts.compared == (0, 0, 0)
    assert grow(counts, 16) == ()


def test_growth_takes_the_largest_gain_among_next_sibling_and_first_child():
    _, counts = counts_at_random()
    grown = grow(counts, 24)
    chosen = {()}
    for scored in grown:
        frontier = []
        for path in chosen:
            rank = 0
            while (*path, rank) in chosen:
                rank += 1
            frontier.append((*path, rank))
        assert scored.path in frontier
        assert scored.acceptance == max(counts.acceptance(path) for path in frontier if len(path) <= 4)
        chosen.add(scored.path)


def test_every_prefix_is_a_tree_and_the_tree_of_its_size():
    _, counts = counts_at_random()
    grown = grow(counts, 40)
    assert len(grown) == 39
    for size in range(1, 41):
        assert Topology.from_rank_paths(scored.path for scored in grown[: size - 1]).num_nodes == size
        assert grow(counts, size) == grown[: size - 1]


def test_growth_ends_where_nothing_is_accepted():
    assert [path for path, _ in grow(JointCounts({(0,): 3}, (4, 4)), 64)] == [(0,)]


def test_dense_trees():
    tree = parse_dense("2x3")
    assert tree.num_nodes == 1 + 3 + 9
    assert tree.depths.tolist() == [0] + [1] * 3 + [2] * 9
    assert [(d, b, t.num_nodes) for d, b, t in dense_grid((1, 2), (2, 3))] == [
        (1, 2, 3), (1, 3, 4), (2, 2, 7), (2, 3, 13),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "message"),
    [("3", "no dense tree"), ("0x3", "has no nodes"), ("9x9", "drafts"), ("999x999", "drafts")],
)
def test_dense_trees_that_cannot_be_meant(text, message):
    with pytest.raises(UsageError, match=message) as caught:
        parse_dense(text)
    assert caught.value.hint and len(caught.value.message) < 100
