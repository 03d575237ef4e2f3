"""Recycled successors: what is stored of the verifier's scores, and the trees that grow from it."""

from __future__ import annotations

import numpy as np
import pytest

from fakes import scores
from medusakit.drafters.base import DraftState, StepReader, show_step
from medusakit.drafters.recycling.drafter import RecyclingDrafter
from medusakit.drafters.recycling.table import (
    NUM_SUCCESSORS,
    PROBABILITY_SHARE,
    RANK_SHARES,
    SuccessorTable,
    top_ids,
)
from medusakit.drafters.suffix.drafter import SuffixDrafter
from medusakit.tree.topology import Beam, Draft, Topology, Tree

VOCAB = 20
BEAM = Beam((3, 3, 2), 3)


def liking(*ids: int) -> np.ndarray:
    """Scores that prefer these ids, in this order."""
    logits = np.zeros(VOCAB, np.float32)
    logits[list(ids)] = 10 - np.arange(len(ids))
    return logits


def draft(drafter: RecyclingDrafter, root_id: int, shape: Beam | Topology = BEAM, row: int = 0) -> Draft:
    return drafter.propose([DraftState(row, root_id, np.zeros(1, np.float32), [1, root_id])], shape)[0]


def step(drafter: RecyclingDrafter, tree: Tree, kept: list[int], *likes: tuple[int, ...], row: int = 0) -> None:
    drafter.read_step(row, tree, kept, scores(np.stack([liking(*ids) for ids in likes])))


def test_top_ids_are_those_of_a_sort_and_ties_go_to_the_lowest() -> None:
    logits = np.random.default_rng(0).integers(0, 9, 500).astype(np.float32)
    before = logits.copy()
    ids, best = top_ids(logits, 12)
    assert ids.tolist() == np.argsort(-logits, kind="stable")[:12].tolist()
    assert best.tolist() == logits[ids].tolist()
    assert (logits == before).all(), "scores belong to the runtime"


def test_nothing_is_drafted_before_anything_was_seen() -> None:
    found = draft(RecyclingDrafter(VOCAB), 7)
    assert (found.tokens.tolist(), found.topology.num_nodes) == ([7], 1)


def test_a_stored_successor_is_drafted_and_leads_on() -> None:
    drafter = RecyclingDrafter(VOCAB)
    step(drafter, Tree(Topology.chain(1), np.array([7, 3])), [0, 1], (3, 4), (9, 2))
    found = draft(drafter, 7, Beam((1, 1), 3))
    assert found.tokens.tolist() == [7, 3, 9]
    assert found.topology.parents.tolist() == [-1, 0, 1]


def test_refused_nodes_are_read_too_but_kept_ones_win() -> None:
    """Token 5 stands at two nodes: the kept one's successors stay, in whatever order the nodes are numbered."""
    drafter = RecyclingDrafter(VOCAB)
    shape = Topology.from_parents([-1, 0, 0, 2])
    step(drafter, Tree(shape, np.array([7, 5, 8, 5])), [0, 1], (5,), (11,), (12,), (13,))
    assert draft(drafter, 8, Beam((1,))).tokens.tolist() == [8, 12]
    assert draft(drafter, 5, Beam((1,))).tokens.tolist() == [5, 11]
    step(drafter, Tree(shape, np.array([7, 5, 8, 5])), [0, 2, 3], (8,), (14,), (5,), (15,))
    assert draft(drafter, 5, Beam((1,))).tokens.tolist() == [5, 15]


def test_what_is_newer_replaces_what_was() -> None:
    drafter = RecyclingDrafter(VOCAB)
    for liked in (3, 4):
        step(drafter, Tree.plain(7), [0], (liked,))
    assert draft(drafter, 7, Beam((1,))).tokens.tolist() == [7, 4]


def test_chances_fall_with_rank_and_leave_room() -> None:
    table = SuccessorTable(VOCAB)
    for logits in (liking(4, 5, 6), np.zeros(VOCAB, np.float32), liking(9) * 5):
        table.store(2, logits)
        chances = [guess.probability for guess in table.guesses(2, NUM_SUCCESSORS)]
        assert chances == sorted(chances, reverse=True)
        assert 0 < sum(chances) < 1
    assert chances[0] == pytest.approx(RANK_SHARES[0] + PROBABILITY_SHARE, abs=1e-3), "all of the probability"
    assert len(table.guesses(2, 3)) == 3


def test_a_vocabulary_smaller_than_the_table_is_wide() -> None:
    table = SuccessorTable(3)
    table.store(0, np.array([1.0, 3.0, 2.0], np.float32))
    assert [guess.token for guess in table.guesses(0, 8)] == [1, 2, 0]


def test_rows_share_the_table_and_forgetting_one_keeps_it() -> None:
    drafter = RecyclingDrafter(VOCAB)
    step(drafter, Tree.plain(7), [0], (3,), row=0)
    drafter.forget(0)
    assert draft(drafter, 7, Beam((1,)), row=1).tokens.tolist() == [7, 3]


def test_only_drafters_that_read_steps_are_shown_them() -> None:
    drafter = RecyclingDrafter(VOCAB)
    assert isinstance(drafter, StepReader) and not isinstance(SuffixDrafter(), StepReader)
    for each in (drafter, SuffixDrafter()):
        show_step(each, 0, Tree.plain(7), [0], scores(np.stack([liking(3)])))
    assert draft(drafter, 7, Beam((1,))).tokens.tolist() == [7, 3]
