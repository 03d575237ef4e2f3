"""A tree that somebody asks for: by name, as depth x branching, or node by node."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from medusakit.config import nearest
from medusakit.errors import UsageError
from medusakit.tree.search import parse_dense
from medusakit.tree.topology import RankPath, Topology

AUTO, DYNAMIC, STATIC = "auto", "dynamic", "static"
NAMES = (AUTO, DYNAMIC, STATIC)
MAX_PATHS, MAX_DEPTH, MAX_RANK = 255, 64, 255
EXAMPLE = "[[0], [1], [0, 0]]"

# As people give it: a name, "DxB", or paths of ranks, parents first; the best guess under a node has rank 0.
TreeWish = str | Sequence[Sequence[int]]
# The same, checked.
GivenTree = str | tuple[RankPath, ...]


def checked(tree: TreeWish) -> GivenTree:
    """`tree` as it is kept. Raises UsageError for what is no tree, with one that is."""
    if not isinstance(tree, str):
        paths = _paths(tree)
        _topology(paths)
        return paths
    if tree not in NAMES and not is_dense(tree):
        message = f"tree {tree!r} is neither {', '.join(NAMES)}, nor depth x branching"
        raise UsageError(message, hint=f"--tree {nearest(tree, NAMES) or '2x3'}")
    if tree not in NAMES:
        parse_dense(tree)
    return tree


def is_dense(text: str) -> bool:
    """Whether it is meant as depth x branching, e.g. "2x3"."""
    return re.fullmatch(r"\s*\d+\s*[xX]\s*\d+\s*", text) is not None


def given_topology(tree: GivenTree, depth: int, drafter: str, *, vocab_size: int | None = None) -> Topology:
    """The nodes that were asked for, by shape or one by one.

    depth       tokens that `drafter` guesses ahead
    vocab_size  of the model, if there is one: so many guesses there are at most under a node
    Raises UsageError for a deeper or wider tree.
    """
    topology = parse_dense(tree) if isinstance(tree, str) else _topology(tree)
    if topology.max_depth > depth:
        message = f"tree: it is {topology.max_depth} deep, but {drafter} guesses {depth} tokens ahead"
        raise UsageError(message, hint=f"--tree {depth}x2" if isinstance(tree, str) else "shorter paths")
    wide = int(topology.ranks.max()) + 1
    if vocab_size is not None and wide > vocab_size:
        message = f"tree: it wants {wide} guesses of one token, but the vocabulary has {vocab_size}"
        raise UsageError(message, hint="--tree 2x3")
    return topology


def _topology(paths: Sequence[RankPath]) -> Topology:
    try:
        return Topology.from_rank_paths(paths)
    except ValueError as error:
        raise UsageError(f"tree: its paths are no tree: {error}", hint=EXAMPLE) from None


def _paths(tree: Any) -> tuple[RankPath, ...]:
    if not _is_list(tree):
        raise UsageError(f"tree: {type(tree).__name__} is neither a name nor a list of paths", hint=EXAMPLE)
    if not 1 <= len(tree) <= MAX_PATHS:
        raise UsageError(f"tree: it has {len(tree)} paths; expected 1 to {MAX_PATHS}", hint=EXAMPLE)
    return tuple(_path(place, path) for place, path in enumerate(tree))


def _is_list(value: Any) -> bool:
    if isinstance(value, np.ndarray):
        return value.ndim > 0  # an array of no dimension has no length
    return isinstance(value, Sequence) and not isinstance(value, str | bytes)


def _path(place: int, path: Any) -> RankPath:
    if not _is_list(path) or not 1 <= len(path) <= MAX_DEPTH:
        message = f"tree: path {place} is {str(path)[:60]}; expected a list of 1 to {MAX_DEPTH} ranks"
        raise UsageError(message, hint=EXAMPLE)
    for rank in path:
        whole = isinstance(rank, int | np.integer) and not isinstance(rank, bool)
        if not whole or not 0 <= rank <= MAX_RANK:
            message = f"tree: path {place} holds {str(rank)[:60]}; a rank is a whole number from 0 to {MAX_RANK}"
            raise UsageError(message, hint=EXAMPLE)
    return tuple(int(rank) for rank in path)
