"""T(n) tables and the budget they lead to."""

from typing import Any

import numpy as np
import pytest

from medusakit.tree.cost import Budget, Rate, StepCost, best_of, budgets

STAIRS = StepCost.single({1: 10.0, 2: 12.0, 4: 12.0, 8: 13.0, 16: 26.0})


def test_what_was_measured_can_be_read():
    assert StepCost({2048: {2: 0.0301}, 256: {8: 0.02, 1: 0.01}}).milliseconds() == {
        256: {1: 10, 8: 20},
        2048: {2: 30.1},
    }


def test_a_table_measured_anew_counts_for_all_that_is_derived_from_it():
    cost, newer = StepCost({256: {1: 9.0, 8: 9.0}, 1256: {1: 9.5}}), StepCost({128: {1: 1.0, 8: 4.0}, 1128: {1: 2.0}})
    cost.curve(8, 900), cost.seconds(8, 900)
    cost.adopt(newer)
    assert cost == newer and cost.curve(8, 628).tolist() == newer.curve(8, 628).tolist()
    assert cost.curve(8, 628)[0] == 1.5 and cost.seconds(8) == 4.0


@pytest.mark.parametrize(
    ("num_nodes", "seconds"),
    [(1, 10), (2, 12), (3, 12), (4, 12), (5, 13), (8, 13), (9, 26), (16, 26), (17, 26 + 13 / 8), (32, 52)],
)
def test_sizes_between_measured_ones_cost_the_dearer_neighbour(num_nodes, seconds):
    assert STAIRS.seconds(num_nodes) == pytest.approx(seconds)


def test_a_cheaper_larger_size_is_not_trusted_for_the_sizes_below_it():
    assert StepCost.single({1: 1.0, 5: 4.0, 8: 3.0}).seconds(6) == 4.0


def test_one_measured_size_extrapolates_in_proportion():
    assert StepCost.single({4: 2.0}).seconds(8) == 4.0


def test_a_longer_context_adds_a_line():
    cost = StepCost({256: {1: 1.0, 2: 1.5}, 1256: {1: 2.0, 2: 3.5}})
    assert [cost.seconds(1, context) for context in (None, 0, 256, 756, 1256, 2256)] == pytest.approx(
        [1, 1, 1, 1.5, 2, 3]
    )
    assert cost.seconds(2, 756) == pytest.approx(1.5 + 1.0)
    assert cost.curve(2, 756) == pytest.approx([1.5, 2.5])


def test_few_sizes_at_a_long_context_keep_the_stairs_of_the_short_one():
    cost = StepCost({100: {1: 1.0, 2: 1.0, 3: 5.0, 4: 5.0}, 200: {1: 2.0, 4: 9.0}})
    assert cost.curve(4, 200) == pytest.approx([2.0, 3.0, 8.0, 9.0])


def test_a_curve_counts_the_rows_of_a_batch():
    assert STAIRS.curve(3, rows=4).tolist() == [12.0, 13.0, 26.0]


def test_a_rate_forgets():
    rate = Rate(keep=0.5)
    assert rate.value is None
    rate.add(0.0, 1.0)  # a draft took its time, no tree was chosen yet
    assert rate.value is None
    for _ in range(20):
        rate.add(10.0, 1.0)
    rate.add(0.0, 2.0)
    assert rate.value == pytest.approx(10 / 3, rel=1e-3)
    rate.reset()
    assert rate.value is None


@pytest.mark.parametrize("tables", [{}, {256: {}}])
def test_an_empty_table_is_refused(tables):
    with pytest.raises(ValueError, match="at least one"):
        StepCost(tables)


def best_budget(*arguments: Any, **options: Any) -> Budget:
    return best_of(budgets(*arguments, **options))


def test_best_budget_looks_behind_a_step_of_the_stairs():
    gains = [0.5, 0.01, 0.3, 0.2, 0.1, 0.1, 0.1]
    found = best_budget(gains, STAIRS, draft_s=1.0, other_s=0.0)
    assert found.num_nodes == 8
    assert found.tau == pytest.approx(2.31)
    assert found.step_s == pytest.approx(14.0)
    assert found.speedup == pytest.approx(2.31 / 1.4)


def test_plain_wins_where_drafts_do_not_pay_and_pays_no_draft():
    found = best_budget([0.05, 0.01], STAIRS, draft_s=2.0, other_s=0.5)
    assert (found.num_nodes, found.tau, found.step_s, found.speedup) == (1, 1.0, 10.5, 1.0)


def test_ties_take_the_smaller_budget():
    flat = StepCost.single({1: 1.0, 3: 1.0})
    assert best_budget([0.5, 0.0], flat, 0.0, 0.0).num_nodes == 2


def test_limits():
    gains = np.full(20, 0.3)
    assert best_budget(gains, STAIRS, 0.0, 0.0, max_nodes=4).num_nodes <= 4
    assert best_budget([], STAIRS, 1.0, 0.0).num_nodes == 1
    assert [budget.num_nodes for budget in budgets(gains, STAIRS, 0.0, 0.0)] == list(range(1, 22))


def test_best_budget_equals_a_direct_search():
    random = np.random.default_rng(0)
    for _ in range(50):
        gains = np.sort(random.random(12))[::-1] * random.random()
        cost = StepCost.single({n: float(random.random() + n / 8) for n in range(1, 14)})
        rates = [1 / (cost.seconds(1) + 0.1)]
        rates += [(1 + gains[: n - 1].sum()) / (cost.seconds(n) + 0.2 + 0.1) for n in range(2, 14)]
        assert best_budget(gains, cost, 0.2, 0.1).num_nodes == int(np.argmax(rates)) + 1


def test_a_draft_may_cost_more_for_more_nodes():
    flat = StepCost.single({1: 10.0, 2: 10.0, 3: 10.0})
    assert best_budget([0.5, 0.3], flat, [0.0, 1.0, 1.0], 0.0).num_nodes == 3
    assert best_budget([0.5, 0.3], flat, [0.0, 1.0, 9.0], 0.0).num_nodes == 2
