"""The suffix automaton against brute force, its time bound by counting, and what the drafter makes of it."""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np
import pytest

from medusakit.drafters.base import Drafter, DraftState
from medusakit.drafters.suffix.automaton import COUNTED_DEPTH, START, SuffixAutomaton
from medusakit.drafters.suffix.drafter import Match, SuffixDrafter, continuations, discount
from medusakit.tree.topology import Beam, Draft, Topology

NO_HIDDEN = np.zeros(1, np.float32)
BEAM = Beam((4,) * 8)


def automaton_of(text: Sequence[int]) -> SuffixAutomaton:
    automaton = SuffixAutomaton()
    for token in text:
        automaton.extend(token)
    return automaton


def places(text: Sequence[int], part: Sequence[int]) -> list[int]:
    """Where `part` ends in `text`."""
    size = len(part)
    return [end for end in range(size, len(text) + 1) if list(text[end - size : end]) == list(part)]


def longest_repeated_suffix(text: Sequence[int]) -> int:
    return max(size for size in range(len(text)) if size == 0 or len(places(text, text[-size:])) > 1)


def random_text(seed: int, length: int, letters: int) -> list[int]:
    return random.Random(seed).choices(range(letters), k=length)


def draft(drafter: Drafter, ids: Sequence[int], shape: Beam | Topology = BEAM, row: int = 0) -> Draft:
    return drafter.propose([DraftState(row, ids[-1], NO_HIDDEN, ids)], shape)[0]


@pytest.mark.parametrize(("seed", "letters"), [(0, 2), (1, 3), (2, 5), (3, 20)])
def test_the_match_is_the_longest_suffix_that_occurs_earlier(seed: int, letters: int) -> None:
    text, automaton = random_text(seed, 70, letters), SuffixAutomaton()
    for end, token in enumerate(text, start=1):
        automaton.extend(token)
        assert automaton.length(automaton.match) == longest_repeated_suffix(text[:end])


@pytest.mark.parametrize(("seed", "letters"), [(0, 2), (1, 4), (2, 9)])
def test_successors_and_counts_of_every_suffix_on_the_chain(seed: int, letters: int) -> None:
    text = random_text(seed, 60, letters)
    automaton = automaton_of(text)
    state = automaton.match
    while state != START:
        part = text[-automaton.length(state) :]
        ends = places(text, part)
        assert automaton.count(state) == len(ends)
        followed = [text[end] for end in ends if end < len(text)]
        counted = {token: automaton.count(after) for token, after in automaton.successors(state).items()}
        assert counted == {token: followed.count(token) for token in followed}
        state = automaton.shorter(state)


@pytest.mark.parametrize(
    "text",
    [[1] * 4000, [1, 2] * 2000, random_text(0, 4000, 2), random_text(1, 4000, 300), [1] * 2000 + [2] + [1] * 1999],
    ids=["one token", "two in turn", "coin", "words", "nearly one token"],
)
def test_appending_is_amortised_constant(text: list[int]) -> None:
    """States at most 2 n, transitions at most 3 n, and work within a constant of n, whatever the text."""
    automaton = SuffixAutomaton()
    for size, token in enumerate(text, start=1):
        automaton.extend(token)
        if size in (1000, 2000, 4000):
            assert automaton.num_states <= 2 * size
            assert automaton.num_transitions <= 3 * size
            assert automaton.work <= (COUNTED_DEPTH + 5) * size


def test_counts_of_texts_that_repeat_saturate_but_keep_their_order() -> None:
    automaton = automaton_of([1] * 1000)
    chain, state = [], automaton.match
    while state != START:
        chain.append(automaton.count(state))
        state = automaton.shorter(state)
    assert chain == sorted(chain)
    assert chain[-1] >= COUNTED_DEPTH


def test_a_repeated_sentence_is_drafted_to_its_end() -> None:
    sentence = [5, 6, 7, 8, 9, 10, 11]
    found = draft(SuffixDrafter(), [*sentence, 1, *sentence[:3]])
    assert found.tokens[:5].tolist() == [7, 8, 9, 10, 11]
    assert found.topology.parents[:5].tolist() == [-1, 0, 1, 2, 3]
    assert (np.diff(np.exp(found.logprobs[1:5])) > 0).all(), "every accepted token makes the match longer and surer"


def test_nothing_is_drafted_where_nothing_matches() -> None:
    assert draft(SuffixDrafter(), [1, 2, 3, 4]).tokens.tolist() == [4]
    assert draft(SuffixDrafter(), [7]).tokens.tolist() == [7]


def test_several_continuations_are_ordered_by_count() -> None:
    found = draft(SuffixDrafter(), [1, 2, 8, 1, 3, 9, 1, 3, 7, 1], Beam((4,)))
    assert found.tokens.tolist() == [1, 3, 2]
    assert np.exp(found.logprobs[1:]) == pytest.approx([(2 - discount(1, 2)) / 3, (1 - discount(1, 2)) / 3], rel=1e-5)


def test_shorter_matches_share_what_the_longest_leaves() -> None:
    """After `1 2` came 3; after `2` alone also 4: it gets a part of the discount."""
    automaton = automaton_of([1, 2, 3, 0, 2, 4, 1, 2])
    guesses = continuations(automaton, Match(automaton.match, 2), 8)
    assert [guess.token for guess in guesses] == [3, 4]
    first, second = (guess.probability for guess in guesses)
    assert first == pytest.approx(1 - discount(2, 1))
    assert 0 < second < 1 - first
    assert guesses[0].state.length == 3 and guesses[1].state.length == 2


def test_longer_matches_are_trusted_more() -> None:
    trusted = [discount(length, 1) for length in range(1, 200)]
    assert trusted == sorted(trusted, reverse=True)
    assert all(0 < discount(length, 2) < 1 for length in range(1, 200))


def test_rejected_tokens_never_enter_and_observing_changes_nothing() -> None:
    """The text is what was emitted: the same ids give the same draft, whatever was drafted and refused before."""
    text = random_text(4, 40, 4)
    busy = SuffixDrafter()
    for end in range(1, len(text)):
        proposal = draft(busy, text[:end])
        busy.observe(0, [int(proposal.tokens[0])], np.zeros((1, 1), np.float32))
    fresh = SuffixDrafter()
    ours, theirs = draft(busy, text), draft(fresh, text)
    assert ours.tokens.tolist() == theirs.tokens.tolist()
    assert ours.logprobs.tolist() == theirs.logprobs.tolist()


def test_steps_that_were_decoded_plainly_are_caught_up_with() -> None:
    text = random_text(5, 50, 4)
    behind = SuffixDrafter()
    draft(behind, text[:10])
    assert draft(behind, text).tokens.tolist() == draft(SuffixDrafter(), text).tokens.tolist()


def test_rows_are_apart_and_a_forgotten_row_begins_anew() -> None:
    drafter = SuffixDrafter()
    draft(drafter, [1, 2, 3, 1, 2], row=0)
    assert draft(drafter, [9, 2], row=1).tokens.tolist() == [2]
    drafter.forget(0)
    drafter.forget(5)
    assert draft(drafter, [9, 2], row=0).tokens.tolist() == [2]


def test_a_row_that_nobody_forgot_is_not_mixed_with_another_text() -> None:
    drafter = SuffixDrafter()
    draft(drafter, [1, 2, 3, 1, 2])
    assert draft(drafter, [9, 2]).tokens.tolist() == [2]
    assert draft(drafter, [4, 2, 3, 5, 6, 7, 2]).tokens.tolist()[:2] == [2, 3]


def test_memory_is_bounded_and_the_latest_text_is_kept() -> None:
    drafter, text = SuffixDrafter(max_tokens=64), random_text(6, 1000, 300)
    for end in range(1, len(text) + 1, 7):
        draft(drafter, text[:end])
        assert drafter._rows[0].automaton.num_tokens <= 64
    again = [*text, *text[-20:-10]]
    assert draft(drafter, again).tokens.tolist()[1:4] == text[-10:-7]


def test_a_given_tree_is_filled() -> None:
    """Exactly its nodes; where nothing was guessed, distinct tokens at a probability of nothing."""
    shape = Topology.from_rank_paths([(0,), (1,), (0, 0), (0, 1), (1, 0), (2,)])
    found = draft(SuffixDrafter(), [1, 2, 8, 1, 3, 9, 1, 3, 7, 1], shape)
    assert found.topology is shape
    assert found.tokens[[0, 1, 2, 3]].tolist() == [1, 3, 2, 9]
    assert found.logprobs[6] < -20 < found.logprobs[1]
    for children in shape.children:
        tokens = found.tokens[list(children)].tolist()
        assert len(set(tokens)) == len(tokens)
