"""Trees that somebody asks for: what is taken, and what each refusal says."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from medusakit.errors import UsageError
from medusakit.tree.given import MAX_DEPTH, MAX_PATHS, NAMES, checked, given_topology


@pytest.mark.parametrize("tree", [*NAMES, "2x3", "1X4"])
def test_names_and_shapes_stay_as_they_are(tree: str) -> None:
    assert checked(tree) == tree


@pytest.mark.parametrize("tree", [[[0], [1], [0, 0]], ((0,), (1,), (0, 0)), [np.array([0]), [np.int64(1)], (0, 0)]])
def test_paths_of_any_kind_become_tuples(tree: Any) -> None:
    found = checked(tree)
    assert found == ((0,), (1,), (0, 0))
    assert all(type(rank) is int for path in found for rank in path)
    topology = given_topology(found, 2, "suffix")
    assert (topology.parents.tolist(), topology.ranks.tolist()) == ([-1, 0, 0, 1], [0, 0, 1, 0])


@pytest.mark.parametrize(
    ("tree", "message"),
    [
        ("wide", "'wide' is neither auto, dynamic, static, nor depth x branching"),
        ("9x9", "1024 nodes"),
        ("0x2", "has no nodes"),
        (np.array(3), "ndarray is neither"),
        ([np.array(3)], "path 0 is 3"),
        ([], f"0 paths; expected 1 to {MAX_PATHS}"),
        ([[rank] for rank in range(MAX_PATHS + 1)], f"{MAX_PATHS + 1} paths"),
        ([[0], [0]], "repeated"),
        ([[0, 0], [0]], "comes before its parent"),
        ([[0], []], "path 1 is"),
        ([[0], [0] * (MAX_DEPTH + 1)], "path 1 is"),
        ([[0], 3], "path 1 is 3; expected a list"),
        ([[0], "00"], "path 1 is 00; expected a list"),
        ([[-1]], "path 0 holds -1"),
        ([[256]], "path 0 holds 256"),
        ([[0.0]], "path 0 holds 0.0"),
        ([[True]], "path 0 holds True"),
        (5, "int is neither a name nor a list"),
        ({"0": 1}, "dict is neither a name nor a list"),
    ],
)
def test_what_is_no_tree_is_refused(tree: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message) as refusal:
        checked(tree)
    assert refusal.value.hint


def test_a_tree_deeper_than_its_drafter() -> None:
    with pytest.raises(UsageError, match="it is 3 deep, but medusa guesses 2 tokens ahead") as refusal:
        given_topology("3x1", 2, "medusa")
    assert refusal.value.hint == "--tree 2x2"
    with pytest.raises(UsageError, match="it is 3 deep, but medusa guesses 2 tokens ahead"):
        given_topology(((0,), (0, 0), (0, 0, 0)), 2, "medusa")


def test_a_tree_wider_than_the_vocabulary_is_refused() -> None:
    """There are no such guesses: a drafter that made some up would count as broken, for everybody."""
    assert given_topology("1x8", 2, "suffix", vocab_size=8).num_nodes == 9
    for tree in ("1x9", ((8,),)):
        with pytest.raises(UsageError, match="9 guesses of one token, but the vocabulary has 8"):
            given_topology(tree, 2, "suffix", vocab_size=8)
