"""Device-side acceptance and masks against verify's walk and the masks of the CPU path, on random trees."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from medusakit.runtimes.torch.device.ontree import accepted_path, masks_by_kind, unpacked
from medusakit.runtimes.torch.device.runtime import shape_numbers
from medusakit.runtimes.torch.masks import Segment, tree_masks
from medusakit.tree.topology import Topology, Tree
from medusakit.verify.greedy import GreedyRule
from medusakit.verify.walk import walk

WORDS = 3  # so few that nodes often carry the pick, and siblings the same token


@st.composite
def trees(draw: Any, most: int = 12) -> Tree:
    parents = [-1] + [draw(st.integers(0, node)) for node in range(draw(st.integers(0, most - 1)))]
    tokens = draw(st.lists(st.integers(0, WORDS - 1), min_size=len(parents), max_size=len(parents)))
    return Tree(Topology.from_parents(parents), np.array(tokens))


class Picked:
    """Scores whose argmax is given."""

    def __init__(self, picks: list[int]) -> None:
        self._picks = picks

    def argmax(self, node: int) -> int:
        return self._picks[node]


def numbers(rows: list[Tree], width: int) -> tuple[Any, ...]:
    """tokens, parents, depths, sees, real, as a padded step has them."""
    fields = np.zeros((4, len(rows), width), np.int64)
    for row, tree in enumerate(rows):
        fields[0, row, : tree.num_nodes] = tree.tokens
        fields[1:, row, : tree.num_nodes] = shape_numbers(tree.topology)
    tokens, parents, depths, bits = torch.from_numpy(fields)
    real = torch.arange(width) < torch.tensor([[tree.num_nodes] for tree in rows])
    return tokens, parents, depths, unpacked(bits), real


@given(rows=st.lists(trees(), min_size=1, max_size=4), padding=st.integers(0, 5), data=st.data())
@settings(max_examples=150, deadline=None)
def test_the_accepted_path_is_the_greedy_walk(rows: list[Tree], padding: int, data: Any) -> None:
    width = max(tree.num_nodes for tree in rows) + padding
    picks = [data.draw(st.lists(st.integers(0, WORDS - 1), min_size=width, max_size=width)) for _ in rows]
    counts, paths = accepted_path(*numbers(rows, width), torch.tensor(picks))
    for row, tree in enumerate(rows):
        expected = walk(tree, Picked(picks[row]), GreedyRule(), [0])  # type: ignore[arg-type]
        assert tuple(paths[row, : int(counts[row])].tolist()) == expected.nodes


def test_rows_of_nothing_accept_nothing() -> None:
    tokens, parents, depths, sees, real = numbers([Tree.plain(1)], 4)
    counts, _ = accepted_path(tokens, parents, depths, sees, real & False, tokens)
    assert counts.tolist() == [[0]]


def test_sixty_four_nodes_fit_the_bits() -> None:
    chain = Topology.chain(63)
    sees = unpacked(torch.from_numpy(shape_numbers(chain)[2:3]))
    np.testing.assert_array_equal(sees[0].numpy(), chain.ancestors)


@pytest.mark.parametrize("window", [0, 4])
@given(rows=st.lists(st.tuples(trees(), st.integers(1, 9)), min_size=1, max_size=3))
@settings(max_examples=60, deadline=None)
def test_the_mask_is_that_of_the_dynamic_pass(window: int, rows: list[tuple[Tree, int]]) -> None:
    width, cells = max(tree.num_nodes for tree, _ in rows) + 2, 24
    _, _, depths, sees, _ = numbers([tree for tree, _ in rows], width)
    lengths = torch.tensor([[length] for _, length in rows])
    found = masks_by_kind(sees, depths, lengths, cells, {"full_attention": window}, torch.float32)
    for row, (tree, length) in enumerate(rows):
        segment = Segment(0, length, tree.tokens, tree.topology)
        expected = tree_masks([segment], {"full_attention": window}, torch.float32, "cpu")
        count = tree.num_nodes
        torch.testing.assert_close(found[row, :, :count, : length + count], expected[0], rtol=0, atol=0)
        assert bool((found[row, :, :count, length + count :] < -1e30).all())
