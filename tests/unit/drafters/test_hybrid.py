"""Several sources as one drafter: merged tries, calibration by what came, heads asked only where they pay."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from medusakit.drafters.base import Drafter, DraftState, Learner, StepReader
from medusakit.drafters.hybrid.calibration import CEILING, Calibration
from medusakit.drafters.hybrid.drafter import HybridDrafter, Source
from medusakit.drafters.hybrid.merge import Said, merge
from medusakit.drafters.hybrid.worth import EXPLORE, DraftWorth
from medusakit.tree.cost import Rate
from medusakit.tree.topology import Beam, Draft, FloatArray, Shape, Topology

NOTHING = np.zeros(1, np.float32)
BEAM = Beam((4, 4, 4))


def trie(paths: dict[tuple[int, ...], float], root: int = 9) -> Draft:
    """A draft of token paths with the probability of each one's last token given the rest."""
    index = {(): 0} | {path: place for place, path in enumerate(paths, 1)}
    topology = Topology.from_parents([-1, *(index[path[:-1]] for path in paths)])
    return Draft(
        topology, np.array([root, *(path[-1] for path in paths)]), np.log(np.array([1, *paths.values()], np.float32))
    )


class Fixed:
    """Says the same at every step, and remembers what it was asked and told."""

    max_depth = 3

    def __init__(self, name: str, paths: dict[tuple[int, ...], float], evidence: int = 0) -> None:
        self.name, self.paths, self.evidence = name, paths, evidence
        self.asked: list[tuple[int, Shape]] = []
        self.observed: list[Sequence[int]] = []
        self.forgotten: list[int] = []

    def propose(self, states: Sequence[DraftState], shape: Shape) -> list[Draft]:
        self.asked.extend((state.row, shape) for state in states)
        drafts = [trie(self.paths, state.root_id) for state in states]
        return [Draft(draft.topology, draft.tokens, draft.logprobs, self.evidence) for draft in drafts]

    def observe(self, row: int, kept_ids: Sequence[int], hidden: FloatArray) -> None:
        self.observed.append(list(kept_ids))

    def forget(self, row: int) -> None:
        self.forgotten.append(row)


def paths_of(draft: Draft) -> dict[tuple[int, ...], float]:
    """Token path -> probability of its last token."""
    tokens, found = draft.tokens.tolist(), {}
    for node in range(1, draft.topology.num_nodes):
        path = tuple(tokens[at] for at in draft.topology.path(node)[1:])
        found[path] = float(np.exp(draft.logprobs[node]))
    assert len(found) == draft.topology.num_nodes - 1  # no path twice
    return found


def run(drafter: HybridDrafter, text: Sequence[int], steps: int, accepted: int = 0) -> list[Draft]:
    """Drafts of `steps` steps, each of which keeps `accepted` drafted tokens of a text that repeats."""
    ids, drafts = [9], []
    for _ in range(steps):
        drafts += drafter.propose([DraftState(0, ids[-1], NOTHING, ids)], BEAM)
        kept = [ids[-1], *(text[(len(ids) + k) % len(text)] for k in range(accepted))]
        drafter.observe(0, kept, NOTHING)
        ids = [*ids, *(text[(len(ids) + k) % len(text)] for k in range(accepted + 1))]
    return drafts


def test_a_path_of_two_sources_is_one_node_with_the_larger_probability() -> None:
    left, right = trie({(1,): 0.5, (2,): 0.3, (1, 3): 0.9}), trie({(2,): 0.6, (2, 4): 0.5, (1,): 0.1})
    draft, probs, masks = merge(9, [(part, np.exp(part.logprobs.astype(np.float64))) for part in (left, right)])
    tokens = [tuple(draft.tokens[at] for at in draft.topology.path(node)[1:]) for node in range(len(probs))]
    found = dict(zip(tokens, zip(probs.round(4), masks.tolist(), strict=True), strict=True))
    assert found == {(): (1, 0), (1,): (0.5, 3), (2,): (0.6, 3), (1, 3): (0.9, 1), (2, 4): (0.5, 2)}
    assert draft.topology.ranks.tolist() == [0, 0, 1, 0, 0]


def test_probabilities_follow_what_comes() -> None:
    """A source says 0.9 of a token that comes in a third of the cases, and 0.1 of one that comes in two thirds."""
    calibration, random = Calibration(1), np.random.default_rng(0)
    for _ in range(400):
        said = Said.of(trie({(1,): 0.9, (2,): 0.1}), np.array([1, 0.9, 0.1]), 0, calibration)
        said.judge([1 if random.random() < 1 / 3 else 2])
    corrected = said.corrected()
    assert corrected[1] == pytest.approx(1 / 3, abs=0.12)
    assert corrected[2] == pytest.approx(2 / 3, abs=0.2)
    calibration.reset()
    assert calibration.corrected(said.buckets, said.probs)[1:] == pytest.approx([0.9, 0.1])


def test_only_places_that_were_reached_are_judged() -> None:
    calibration = Calibration(1)
    said = Said.of(
        trie({(1,): 0.6, (2,): 0.4, (1, 3): 0.95, (2, 3): 0.7}), np.array([1, 0.6, 0.4, 0.95, 0.7]), 0, calibration
    )
    before = said.corrected()
    assert said.judge([2, 5]) == [2]
    after = said.corrected()
    assert after[1] < before[1] and after[2] > before[2] and after[4] < before[4]
    assert after[3] == before[3]


def test_kinds_and_depths_are_told_apart_and_nothing_is_certain() -> None:
    calibration = Calibration(2)
    bucket = int(calibration.buckets(1, np.array([1]), np.array([0.9]))[0])
    for _ in range(200):
        calibration.learn(bucket, 0.9, True)
    others = calibration.buckets(np.array([0, 1, 1]), np.array([1, 2, 1]), np.array([0.9, 0.9, 0.9]))
    assert calibration.corrected(others, np.full(3, 0.9)).tolist() == [0.9, 0.9, CEILING]


def test_the_drafter_merges_and_is_a_drafter() -> None:
    left, right = Fixed("suffix", {(1,): 0.5, (1, 2): 0.5}), Fixed("hydra", {(1,): 0.4, (3,): 0.2})
    drafter = HybridDrafter([Source(left, BEAM), Source(right, Beam((2, 2)), costly=True)])
    assert isinstance(drafter, Drafter) and isinstance(drafter, Learner) and isinstance(drafter, StepReader)
    assert (drafter.name, drafter.max_depth, drafter.beam, drafter.alone) == ("hybrid", 3, BEAM, right)
    (draft,) = run(drafter, [5], 1)
    assert paths_of(draft) == pytest.approx({(1,): 0.5, (1, 2): 0.5, (3,): 0.2})
    drafter.forget(0)
    assert left.observed == right.observed == [[9]]
    assert left.forgotten == right.forgotten == [0]


def test_one_source_keeps_its_name_and_its_exponents_apply() -> None:
    drafter = HybridDrafter([Source(Fixed("hydra", {(1,): 0.5, (1, 2): 0.5}), BEAM, (2.0, 0.5), costly=True)])
    assert drafter.name == "hydra"
    assert paths_of(run(drafter, [5], 1)[0]) == pytest.approx({(1,): 0.25, (1, 2): 0.5**0.5})


def test_what_only_a_bad_source_says_sinks_and_what_a_good_one_says_rises() -> None:
    good, bad = Fixed("good", {(5,): 0.5, (6,): 0.1}), Fixed("bad", {(7,): 0.5, (5,): 0.1})
    drafter = HybridDrafter([Source(good, BEAM), Source(bad, BEAM)])
    last = paths_of(run(drafter, [5], 60)[-1])
    assert last[5,] > 0.9 and last[7,] < 0.1
    drafter.reset()
    assert paths_of(run(drafter, [5], 1)[0])[7,] == pytest.approx(0.5)


def test_evidence_is_told_apart() -> None:
    source = Fixed("suffix", {(7,): 0.9}, evidence=1)
    drafter = HybridDrafter([Source(source, BEAM)])
    run(drafter, [5], 60)
    source.evidence = 40
    ids = [9, 9]
    drafter.forget(0)
    (long,) = drafter.propose([DraftState(0, 9, NOTHING, ids)], BEAM)
    source.evidence = 1
    (short,) = drafter.propose([DraftState(1, 9, NOTHING, ids)], BEAM)
    assert paths_of(short)[7,] < paths_of(long)[7,]


def test_heads_are_not_asked_where_a_match_goes_on_and_are_where_it_does_not() -> None:
    """The free source is right: after some steps the costly one, which adds nothing, is asked now and then only."""
    now = [0.0]

    def clock() -> float:
        now[0] += 0.5
        return now[0]

    rate = Rate()
    rate.add(50.0, 50.0)
    free, heads = Fixed("suffix", {(5,): 0.97}), Fixed("hydra", {(5,): 0.6})
    drafter = HybridDrafter([Source(free, BEAM), Source(heads, BEAM, costly=True)], rate=rate, clock=clock)
    run(drafter, [5], 200, accepted=1)
    asked_late = len(heads.asked)
    assert asked_late < 40
    free.paths = {(7,): 0.01}
    heads.paths = {(5,): 0.9}
    heads.asked.clear()
    drafter.forget(0)
    run(drafter, [5], 50, accepted=1)
    assert len(heads.asked) > 40


def test_a_level_s_least_probability_goes_with_the_beam() -> None:
    rate = Rate()
    heads = Fixed("hydra", {(5,): 0.6})
    drafter = HybridDrafter([Source(heads, BEAM, costly=True)], rate=rate)
    run(drafter, [5], 1)
    rate.add(100.0, 1.0)
    run(drafter, [5], 1)
    (_, first), (_, second) = heads.asked
    assert isinstance(first, Beam) and isinstance(second, Beam)
    assert first.least == 0 and 0 < second.least < 1


def test_rows_are_drafted_together_and_judged_apart() -> None:
    heads = Fixed("hydra", {(5,): 0.5})
    drafter = HybridDrafter([Source(heads, BEAM, costly=True)])
    states = [DraftState(row, 9, NOTHING, [9]) for row in (3, 8)]
    assert len(drafter.propose(states, BEAM)) == 2
    assert [row for row, _ in heads.asked] == [3, 8]
    drafter.propose([DraftState(3, 5, NOTHING, [9, 5]), DraftState(8, 6, NOTHING, [9, 6])], BEAM)
    assert [row for row, _ in heads.asked] == [3, 8, 3, 8]


def test_a_static_tree_is_filled_best_first() -> None:
    drafter = HybridDrafter(
        [Source(Fixed("a", {(1,): 0.2, (2,): 0.1}), BEAM), Source(Fixed("b", {(3,): 0.7, (3, 4): 0.5}), BEAM)]
    )
    shape = Topology.from_rank_paths([(0,), (1,), (0, 0), (1, 0)])
    (draft,) = drafter.propose([DraftState(0, 9, NOTHING, [9])], shape)
    assert draft.topology is shape
    assert draft.tokens[:4].tolist() == [9, 3, 1, 4]


def test_two_costly_sources_are_refused() -> None:
    with pytest.raises(ValueError, match="at most one source may be costly"):
        HybridDrafter([Source(Fixed(name, {}), BEAM, costly=True) for name in "ab"])


def test_a_draft_that_brings_nothing_is_tried_now_and_then() -> None:
    worth = DraftWorth()
    for _ in range(100):
        worth.took(1.0)
        worth.learn(0.0, 0)
    rate = Rate()
    assert worth.asks(0.0, rate)  # nothing is known yet of what time is worth
    rate.add(9.0, 10.0)
    asked = [worth.asks(0.0, rate) for _ in range(3 * EXPLORE)]
    assert sum(asked) == 3
    assert worth.asks(0.5, rate)  # another situation is still believed in
    for _ in range(100):
        worth.learn(0.0, 3)
    assert worth.asks(0.0, rate)


def test_a_path_is_followed_while_its_next_level_is_worth_its_time_and_its_node() -> None:
    worth, rate = DraftWorth(), Rate()
    assert worth.least(rate) == 0.0
    for _ in range(100):
        worth.took(0.5)
    rate.add(1.0, 1.0)
    cheap = worth.least(rate)
    rate.node_s = 0.2
    assert 0 < cheap < worth.least(rate) <= 1
