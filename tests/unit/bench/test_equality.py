"""Where two answers part, and whether the call was close enough to be a matter of rounding."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from bench_fakes import make_llm
from fakes import Script, ScriptedRuntime
from medusakit.bench.equality import Difference, equality_summary, first_difference, judge_difference
from medusakit.runtimes.base import Capabilities
from medusakit.runtimes.reference import ArrayScores
from medusakit.settings import SamplingParams
from medusakit.tree.topology import Tree

GREEDY = SamplingParams(seed=0)
SAMPLED = SamplingParams(seed=3, temperature=1.0)
LOGITS = np.full(23, -5.0, np.float32)
LOGITS[[4, 5, 6]] = 2.0, 1.9995, 1.9
CALL = ArrayScores(LOGITS[None], np.zeros((1, 1), np.float32))


class OneCall(ScriptedRuntime):
    """Says the same logits everywhere, in the exactness class of `exact`, and remembers what it was asked."""

    exact = "bitwise-ties"
    asked: tuple[int, ...] = ()

    @property
    def capabilities(self) -> Capabilities:
        return replace(super().capabilities, exact=self.exact)

    def prefill(self, row: int, ids: Sequence[int]) -> ArrayScores:
        self.asked = tuple(ids)
        return CALL

    def forward(self, trees: Sequence[tuple[int, Tree]]) -> list[ArrayScores]:
        self.asked += tuple(trees[0][1].tokens.tolist())
        super().forward(trees)
        return [CALL]


def runtime(exact: str) -> OneCall:
    made = OneCall(Script((0, 1, 2), 23))
    made.exact = exact
    return made


def judge(
    left: list[int], right: list[int], exact: str = "bitwise-ties", params: SamplingParams = GREEDY
) -> Difference | None:
    return judge_difference(make_llm(runtime(exact)), "here", [1, 2], left, right, params)


@pytest.mark.parametrize("acceptance", ["typical", "dynamic"])
def test_a_lossy_rule_has_no_ties(acceptance: str) -> None:
    found = judge([4, 5], [4, 6], params=replace(SAMPLED, acceptance=acceptance))
    assert found is not None and (found.position, found.gap, found.tied) == (1, float("inf"), False)


@pytest.mark.parametrize(
    ("left", "right", "place"),
    [([], [], None), ([1, 2], [1, 2], None), ([1, 2], [1, 3], 1), ([1], [1, 3], 1), ([1, 2], [], 0)],
)
def test_first_difference(left: list[int], right: list[int], place: int | None) -> None:
    assert first_difference(left, right) == place


def test_equal_answers_have_no_difference() -> None:
    assert judge([4, 5], [4, 5]) is None


def test_fp32_ties_within_a_thousandth() -> None:
    tie, apart = judge([7, 4, 1], [7, 5, 1]), judge([7, 4, 1], [7, 6, 1])
    assert tie is not None and apart is not None
    assert tie.gap == pytest.approx(5e-4, rel=1e-2) and tie.tied
    assert apart.gap == pytest.approx(0.1, rel=1e-3) and not apart.tied
    assert (apart.position, apart.left_id, apart.right_id) == (1, 4, 6)


def test_quantised_activations_tie_within_fifteen_hundredths() -> None:
    close, far = judge([4], [6], "numerical-ties"), judge([4], [0], "numerical-ties")
    assert close is not None and close.tied
    assert far is not None and not far.tied and far.gap == pytest.approx(7.0)
    assert far.spread == pytest.approx(float(LOGITS.std()))


def test_the_common_part_is_decoded_again_on_a_row_that_is_given_back() -> None:
    said = runtime("bitwise-ties")
    judge_difference(make_llm(said), "here", [1, 2], [7, 4, 1], [7, 5, 1], GREEDY)
    assert said.asked == (1, 2, 7)
    assert said.rows == ()


def test_sampled_calls_are_compared_with_their_noise() -> None:
    tie, apart = judge([4], [5]), judge([4], [5], params=SAMPLED)
    assert tie is not None and tie.tied
    assert apart is not None and not apart.tied and apart.gap > 0.01  # the noise parts them


def test_an_answer_that_ends_early_is_never_a_tie() -> None:
    ended = judge([4], [4, 5])
    assert ended is not None and not ended.tied
    assert (ended.left_id, ended.right_id, ended.gap) == (None, 5, float("inf"))


def test_summary_counts_every_turn_once() -> None:
    tie = Difference("a", 3, 1, 2, 1e-4, 3.0, True)
    found = equality_summary([None, tie, Difference("b", 0, 1, 2, 4.0, 3.0, False), None])
    assert {key: found[key] for key in ("turns", "equal", "tied", "different")} == {
        "turns": 4, "equal": 2, "tied": 1, "different": 1,
    }  # fmt: skip
    assert [entry["where"] for entry in found["first_differences"]] == ["a", "b"]
