"""Shapes of trees: construction, prefixes, masks, paths."""

import numpy as np
import pytest

from medusakit.tree.topology import PLAIN, Draft, Topology, Tree

PATHS = [(0,), (1,), (0, 0), (3,), (0, 2), (1, 0), (0, 0, 0)]


def test_rank_paths_round_trip():
    shape = Topology.from_rank_paths(PATHS)
    assert list(shape.rank_paths) == [(), *PATHS]
    assert shape.parents.tolist() == [-1, 0, 0, 1, 0, 1, 2, 3]
    assert shape.depths.tolist() == [0, 1, 1, 2, 1, 2, 2, 3]
    assert shape.children == ((1, 2, 4), (3, 5), (6,), (7,), (), (), (), ())
    assert shape.path(7) == [0, 1, 3, 7]
    assert (shape.num_nodes, shape.max_depth) == (8, 3)


def test_ranks_without_paths_follow_sibling_order():
    assert Topology.from_parents([-1, 0, 0, 1, 0]).ranks.tolist() == [0, 0, 1, 0, 2]


def test_a_node_sees_its_ancestors_and_itself():
    shape = Topology.from_rank_paths(PATHS)
    for node in range(shape.num_nodes):
        assert np.flatnonzero(shape.ancestors[node]).tolist() == sorted(shape.path(node))
    with pytest.raises(ValueError, match="read-only"):
        shape.ancestors[0, 1] = True


def test_every_prefix_is_a_tree_with_the_same_first_nodes():
    shape = Topology.from_rank_paths(PATHS)
    for size in range(1, shape.num_nodes + 1):
        prefix = shape.prefix(size)
        assert list(prefix.rank_paths) == [(), *PATHS][:size]
        assert np.array_equal(prefix.ancestors, shape.ancestors[:size, :size])
    assert shape.prefix(99) is shape


def test_chain_dense_and_plain():
    assert Topology.chain(3).parents.tolist() == [-1, 0, 1, 2]
    assert PLAIN.num_nodes == 1 and PLAIN.children == ((),)
    assert Tree.plain(7).tokens.tolist() == [7]
    assert Topology.dense([2, 1]).rank_paths == ((), (0,), (1,), (0, 0), (1, 0))


@pytest.mark.parametrize("parents", [[], [0], [-1, 1], [-1, 2, 0], [-1, -1]])
def test_what_is_no_tree_is_refused(parents):
    with pytest.raises(ValueError, match="root|comes after its parent"):
        Topology.from_parents(parents)


@pytest.mark.parametrize("paths", [[()], [(0,), (0,)], [(0, 0), (0,)]])
def test_rank_paths_need_their_parents_once_and_first(paths):
    with pytest.raises(ValueError, match="empty, repeated, or comes before its parent"):
        Topology.from_rank_paths(paths)


def test_path_log_probabilities_add_up_along_the_path():
    shape = Topology.from_parents([-1, 0, 0, 1, 3])
    draft = Draft(shape, np.arange(5), np.array([0, -1, -2, -0.5, -0.25], dtype=np.float32))
    assert draft.path_logprobs().tolist() == [0, -1, -2, -1.5, -1.75]
    assert draft.logprobs.tolist() == [0, -1, -2, -0.5, -0.25]
