"""From shapes to levels and back to drafts."""

from __future__ import annotations

import numpy as np
import pytest

from medusakit.drafters.plan import beam_sizes, check_beam, draft_of_beam, draft_of_topology, plan_levels
from medusakit.errors import UsageError
from medusakit.tree.topology import Beam, Topology

WIDTHS_2_3 = Topology.dense([2, 3])


def test_levels_of_a_dense_tree() -> None:
    first, second = plan_levels(WIDTHS_2_3, max_depth=2, vocab_size=10)
    assert first.nodes.tolist() == [1, 2]
    assert first.expanded.tolist() == [0, 1]
    assert second.nodes.tolist() == [3, 4, 5, 6, 7, 8]
    assert second.parent_places.tolist() == [0, 0, 0, 1, 1, 1]
    assert second.ranks.tolist() == [0, 1, 2, 0, 1, 2]
    assert second.flat().tolist() == [0, 1, 2, 3, 4, 5]


def test_only_nodes_with_children_are_expanded() -> None:
    shape = Topology.from_rank_paths([(0,), (2,), (2, 1), (1,)])
    first, second = plan_levels(shape, max_depth=2, vocab_size=10)
    assert first.branching == 3
    assert first.expanded.tolist() == [1]  # the second node of its level, rank 2
    assert first.flat()[first.expanded].tolist() == [2]
    assert second.parent_places.tolist() == [0]


def test_a_tree_deeper_than_the_heads_is_refused() -> None:
    with pytest.raises(UsageError, match="3 deep, but the drafter guesses 2"):
        plan_levels(Topology.chain(3), max_depth=2, vocab_size=10)


def test_a_tree_wider_than_the_vocabulary_is_refused() -> None:
    with pytest.raises(UsageError, match="vocabulary of 2"):
        plan_levels(Topology.dense([3]), max_depth=2, vocab_size=2)


def test_a_beam_deeper_than_the_heads_is_refused() -> None:
    with pytest.raises(UsageError, match="3 levels"):
        check_beam(Beam((1, 1, 1)), max_depth=2)
    with pytest.raises(UsageError, match="at least 1"):
        check_beam(Beam((1, 0)), max_depth=2)


def test_a_beam_is_cut_to_a_small_vocabulary() -> None:
    assert beam_sizes(Beam((4, 100), branching=8), vocab_size=3) == (3, (3, 9))


def test_draft_of_topology_gathers_by_parent_and_rank() -> None:
    levels = plan_levels(WIDTHS_2_3, max_depth=2, vocab_size=10)
    tables = [
        (np.array([[4, 5]]), np.array([[-0.1, -0.2]], np.float32)),
        (np.array([[6, 7, 8], [9, 10, 11]]), -np.arange(6, dtype=np.float32).reshape(2, 3)),
    ]
    draft = draft_of_topology(WIDTHS_2_3, levels, 3, tables)
    assert draft.topology is WIDTHS_2_3
    assert draft.tokens.tolist() == [3, 4, 5, 6, 7, 8, 9, 10, 11]
    assert draft.logprobs.tolist() == pytest.approx([0, -0.1, -0.2, 0, -1, -2, -3, -4, -5])


def test_draft_of_beam_links_every_node_to_its_parent() -> None:
    tables = [
        (np.array([[4, 5]]), np.array([[-0.1, -0.2]], np.float32)),
        (np.array([[6, 7], [8, 9]]), np.array([[-1.0, -2.0], [-3.0, -4.0]], np.float32)),
        (np.array([[1, 2], [3, 0]]), np.array([[-5.0, -6.0], [-7.0, -8.0]], np.float32)),
    ]
    chosen = [np.array([0, 1]), np.array([2, 1]), np.array([3])]
    draft = draft_of_beam(2, chosen, 2, tables)
    assert draft.tokens.tolist() == [2, 4, 5, 8, 7, 0]
    assert draft.topology.parents.tolist() == [-1, 0, 0, 2, 1, 4]
    assert draft.topology.depths.tolist() == [0, 1, 1, 2, 2, 3]
    assert draft.topology.ranks.tolist() == [0, 0, 1, 0, 1, 1]
    assert draft.path_logprobs()[5] == pytest.approx(-0.1 - 2.0 - 8.0)
