"""Best-first growth against the definition: level by level, the most probable paths."""

from __future__ import annotations

from math import log

import numpy as np
import pytest

from medusakit.drafters.trie import FILLER, MIN_PATH, Guess, grow
from medusakit.tree.topology import Beam, Topology

State = tuple[int, ...]


def guesses(state: State, limit: int) -> list[Guess[State]]:
    """Some children of any path: how many and how probable follows from the path alone."""
    random = np.random.default_rng([1, *state])
    shares = sorted(random.dirichlet(np.ones(5))[:4].tolist(), reverse=True)
    tokens = random.permutation(50)[:4].tolist()
    return [Guess(token, share, (*state, token)) for token, share in zip(tokens, shares, strict=True)][:limit]


def level_by_level(widths: tuple[int, ...], branching: int) -> list[tuple[State, float]]:
    """Every kept path with its log-probability, as the definition of a Beam says."""
    level: list[tuple[State, float]] = [((3,), 0.0)]
    kept = []
    for width in widths:
        grown = [
            (guess.state, path + log(guess.probability)) for state, path in level for guess in guesses(state, branching)
        ]
        level = sorted((one for one in grown if one[1] > MIN_PATH), key=lambda one: -one[1])[:width]
        kept += level
    return kept


@pytest.mark.parametrize("widths", [(1,), (4, 4, 4), (3, 1, 5, 2), (2, 2, 2, 2, 2, 2)])
@pytest.mark.parametrize("branching", [1, 3, 8])
def test_a_beam_keeps_the_most_probable_paths_of_every_level(widths: tuple[int, ...], branching: int) -> None:
    found = grow(3, (3,), guesses, Beam(widths, branching))
    paths = [
        (tuple(found.tokens[found.topology.path(node)].tolist()), float(total))
        for node, total in enumerate(found.path_logprobs())
    ]
    expected = dict(level_by_level(widths, branching))
    assert {path for path, _ in paths[1:]} == set(expected)
    assert all(total == pytest.approx(expected[path], abs=1e-5) for path, total in paths[1:])
    totals = [total for _, total in paths]
    assert all(later <= earlier + 1e-6 for earlier, later in zip(totals, totals[1:], strict=False))


def test_a_topology_takes_guesses_by_rank() -> None:
    shape = Topology.from_rank_paths([(1,), (0,), (1, 2), (0, 0)])
    found = grow(3, (3,), guesses, shape)
    first = guesses((3,), 2)
    assert found.tokens[[1, 2]].tolist() == [first[1].token, first[0].token]
    assert found.tokens[3] == guesses(first[1].state, 3)[2].token
    assert found.logprobs[4] == pytest.approx(log(guesses(first[0].state, 1)[0].probability))


def test_where_guesses_run_out_a_topology_is_filled() -> None:
    found = grow(3, (3,), lambda state, limit: [], Topology.dense([3, 2]))
    assert found.tokens[1:4].tolist() == [0, 1, 2]
    assert found.logprobs[1:] == pytest.approx([FILLER] * 9)
    assert grow(3, (3,), lambda state, limit: [], Beam((4, 4))).tokens.tolist() == [3]
