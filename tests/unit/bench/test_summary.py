"""The figures of a report, against numbers worked out by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from medusakit.bench.answers import Answer
from medusakit.bench.summary import Turn, accepted_by_depth, mode_summary, predicted, rho, speedups
from medusakit.tree.cost import StepCost
from medusakit.tree.search import rho_eff


def made(tokens: int, steps: int, forward: float, draft: float = 0.0, other: float = 0.0, **rest: object) -> Answer:
    """An answer of `tokens` tokens after the first, all different so that it does not loop."""
    ids = tuple(range(tokens + 1))
    values = {"nodes": 4 * steps, "prefill_s": 10.0} | rest
    return Answer(ids, "", steps, forward_s=forward, draft_s=draft, other_s=other, **values)  # type: ignore[arg-type]


def test_figures_are_ratios_of_sums() -> None:
    answers = [made(30, 10, 1.0, 0.25, 0.25), made(10, 10, 0.5)]
    found = mode_summary(answers)
    assert (found["answers"], found["tokens"], found["seconds"]) == (2, 40, 2.0)
    assert found["tokens_per_s"] == 20.0  # not the mean of 20 and 20, but (30 + 10) / (1.5 + 0.5)
    assert found["tau"] == 2.0  # not the mean of 3 and 1 weighted by answers: (30 + 10) / (10 + 10)
    assert found["nodes_per_step"] == 4.0
    assert found["time_split"] == {"forward": 0.75, "draft": 0.125, "other": 0.125}
    assert found["ms_per_step"] == {"forward": 75.0, "draft": 12.5, "other": 12.5}
    assert found["prefill_s"] == 20.0
    assert found["looping_share"] == 0.0


def test_long_answers_weigh_more() -> None:
    found = mode_summary([made(90, 30, 3.0), made(10, 10, 2.0)])
    assert found["tokens_per_s"] == 20.0  # (90 + 10) / 5; the mean of 30 and 5 would be 17.5
    assert found["tau"] == 2.5  # (90 + 10) / 40; the mean of 3 and 1 would be 2


def test_one_token_answers_give_no_division_by_zero() -> None:
    found = mode_summary([made(0, 0, 0.0)])
    assert (found["tokens_per_s"], found["tau"], found["nodes_per_step"]) == (0.0, 1.0, 1.0)


def test_looping_answers_are_counted() -> None:
    loop = Answer((1, 2) * 40, "", 40, 40, 0.0, 1.0, 0.0, 0.0)
    assert mode_summary([loop, made(50, 50, 1.0), made(60, 60, 1.0), made(70, 70, 1.0)])["looping_share"] == 0.25


def test_each_depth_over_the_steps_that_offered_it() -> None:
    first = made(9, 5, 1.0, offered=(5, 5, 2), accepted=(3, 1, 1))
    second = made(9, 5, 1.0, offered=(5,), accepted=(4,))
    assert accepted_by_depth([first, second]) == [0.7, 0.2, 0.5]
    assert accepted_by_depth([made(3, 3, 1.0)]) == []


def turn(group: str, category: str, number: int, plain: Answer, medusa: Answer) -> Turn:
    return Turn(group, category, number, {"plain": plain, "medusa": medusa})


def test_speedup_of_speeds_by_category() -> None:
    turns = [
        turn("1", "coding", 0, made(40, 40, 4.0), made(40, 20, 2.0)),  # 10 and 20 tokens/s
        turn("1", "coding", 1, made(20, 20, 2.0), made(20, 10, 1.0)),
        turn("2", "writing", 0, made(60, 60, 6.0), made(30, 15, 3.0)),  # 10 and 10, fewer tokens
    ]
    found = speedups(turns, ["plain", "medusa"], seed=0)
    assert list(found) == ["medusa/plain"]
    pair = found["medusa/plain"]
    assert pair["ratio"] == pytest.approx((90 / 6.0) / (120 / 12.0))
    assert pair["by_category"] == pytest.approx({"coding": 2.0, "writing": 1.0})
    low, high = pair["ci95"]
    assert low == pytest.approx(1.0) and high == pytest.approx(2.0)  # two questions: draws hold one, other or both
    assert pair["by_category_ci95"]["coding"] == pytest.approx([2.0, 2.0])  # one question: both turns are one draw


def test_answers_that_loop_are_left_out_of_a_second_ratio() -> None:
    """The looping answer is four times as fast, the other one and a half times."""
    loop = replace(made(60, 15, 1.0), token_ids=(7,) * 61)
    slow_loop = replace(made(60, 60, 4.0), token_ids=(7,) * 61)
    turns = [
        Turn("a", "x", 0, {"medusa": loop, "plain": slow_loop}),
        Turn("b", "x", 0, {"medusa": made(60, 30, 2.0), "plain": made(60, 60, 3.0)}),
    ]
    found = speedups(turns, ["plain", "medusa"], seed=0)["medusa/plain"]
    assert found["without_loops"] == {"answers": 1, "ratio": 1.5, "ci95": [1.5, 1.5], "tau": 2.0}
    assert speedups(turns[:1], ["plain", "medusa"], seed=0)["medusa/plain"]["without_loops"] is None


def test_all_pairs_of_three_modes() -> None:
    answers = {"plain": made(40, 40, 4.0), "medusa": made(40, 20, 2.0), "hf": made(40, 40, 16.0)}
    found = speedups([Turn("1", "all", 0, answers)], list(answers), seed=0)
    assert {pair: value["ratio"] for pair, value in found.items()} == pytest.approx(
        {"medusa/plain": 2.0, "medusa/hf": 8.0, "plain/hf": 4.0}
    )


def test_rho_is_accepted_over_offered_depths() -> None:
    deep = replace(made(10, 5, 1.0), offered=(5, 5, 4), accepted=(4, 2, 1))
    flat = replace(made(10, 5, 1.0), offered=(6,), accepted=(3,))
    assert rho([deep]) == pytest.approx(7 / 14)
    assert rho([deep, flat]) == pytest.approx(10 / 20)
    assert rho([made(10, 10, 1.0)]) == 0.0
    assert rho_eff(0.5, 3) == pytest.approx(0.875) and rho_eff(0.0, 4) == 0.0 == rho_eff(0.9, 0)
    found = mode_summary([deep, flat])
    assert (found["rho"], found["rho_eff"]) == (0.5, pytest.approx(1 - 0.5 ** (20 / 11)))


def test_the_prediction_takes_these_answers_passes_and_times() -> None:
    """20 tokens in 10 passes, half of one node (0.1 s) and half of 8 (0.16 s); draft 0.02 s, 0.01 s more of other."""
    medusa = made(20, 10, 1.5, 0.2, 0.2, passes=((1, 256), (8, 256)) * 5)
    plain = made(20, 20, 2.0, 0.0, 0.2, passes=((1, 256),) * 20)
    cost = StepCost.single({1: 0.1, 4: 0.12, 8: 0.16})
    found = predicted([Turn("q", "c", 0, {"medusa": medusa, "plain": plain})], cost)
    assert found is not None
    assert found["ratio"] == pytest.approx(2.0 * 0.1 / (0.13 + 0.02 + 0.01))
    assert found["reached"] == pytest.approx((20 / 1.9) / (20 / 2.2) / found["ratio"])


def test_answers_of_one_token_promise_nothing() -> None:
    short = made(0, 0, 0.0)
    assert predicted([Turn("q", "c", 0, {"medusa": short, "plain": short})], StepCost.single({1: 0.1})) is None
