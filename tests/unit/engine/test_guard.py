"""Never knowingly slower: pauses, probes, the circuit breaker, and what it records."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from medusakit.engine import deviations
from medusakit.engine.controller import FixedController, GuardedController
from medusakit.engine.guard import BAD_ROUNDS, FRESH, PROBE, ROUND, SHORTEST, TRIPPED, Guard, Round
from medusakit.engine.plan import PLAIN_PLAN, Plan, make_plan
from medusakit.engine.step import Outcome
from medusakit.tree.cost import StepCost
from medusakit.tree.policy import StaticPolicy
from medusakit.tree.topology import Draft, Topology

COST = StepCost.single({1: 1.0, 4: 1.2})


class Nobody:
    name, max_depth = "nobody", 3

    def __init__(self) -> None:
        self.resets = 0

    def reset(self) -> None:
        self.resets += 1

    def propose(self, states: object, shape: object) -> list[Draft]:
        return []

    def observe(self, *_: object) -> None: ...

    def forget(self, row: int) -> None: ...


PLAN = make_plan(Nobody(), StaticPolicy(Topology.chain(3)), 4)


def outcome(plan: Plan, tokens: int, *, pace: float = 1.0, draft_s: float = 0.1) -> Outcome:
    """A step as the cost table foresees it, at today's pace."""
    if plan is PLAIN_PLAN:
        return Outcome(plan, 1, 1, 0, 0, 1, 1, 100, 0.0, pace * 1.0, 0.0)
    return Outcome(plan, 1, tokens, 3, tokens - 1, 4, 4, 100, pace * draft_s, pace * 1.2, 0.0)


def decode(guard: Guard, steps: int, tokens: Iterator[int], **facts: float) -> list[bool]:
    """Which steps drafted."""
    drafted = []
    for _ in range(steps):
        drafted.append(guard.drafts())
        guard.learn(outcome(PLAN, next(tokens), **facts) if drafted[-1] else outcome(PLAIN_PLAN, 1))
    return drafted


def always(tokens: int) -> Iterator[int]:
    while True:
        yield tokens


def lucky(mean: float, seed: int = 0) -> Iterator[int]:
    random = np.random.default_rng(seed)
    while True:
        yield 1 + int(random.binomial(3, (mean - 1) / 3))


def test_what_pays_is_never_paused() -> None:
    assert all(decode(Guard(COST), 300, always(2)))
    assert np.mean(decode(Guard(COST), 1000, lucky(1.8))) > 0.97


def test_what_does_not_pay_costs_little() -> None:
    drafted = decode(Guard(COST), 2000, always(1))
    assert sum(drafted) < 60
    assert sum(drafted[-500:]) <= 2 * PROBE
    first = drafted.index(False)
    pauses = "".join("D" if step else "." for step in drafted[first:]).split("D" * PROBE)
    assert [len(pause) for pause in pauses[:3]] == [SHORTEST, 2 * SHORTEST, 4 * SHORTEST]


def test_it_comes_back_when_drafting_pays_again() -> None:
    guard = Guard(COST)
    decode(guard, 400, always(1))
    assert all(decode(guard, 600, always(2))[-50:])


def test_a_slower_machine_is_not_taken_for_a_bad_drafter() -> None:
    """All passes take twice what the table says; plain ones would too."""
    assert all(decode(Guard(COST), 200, always(2), pace=2.0)[20:])


def test_a_new_request_ends_a_long_pause_soon() -> None:
    guard = Guard(COST)
    while True:
        drafted = decode(guard, 1, always(1))
        if not drafted[0] and guard._left > 4 * FRESH:
            break
    assert not guard.drafts(fresh=True)
    assert True in decode(guard, FRESH + 1, always(1))


FLAT = StepCost.single({1: 1.0, 64: 1.0})


def many(plan: Plan, rows: int, *, tokens: int, draft_s: float = 0.1, width: int = 4) -> Outcome:
    """A step of several rows whose passes all cost the same."""
    if plan is PLAIN_PLAN:
        return Outcome(plan, rows, rows, 0, 0, rows, 1, 100, 0.0, 1.0, 0.0)
    return Outcome(plan, rows, tokens, 3 * rows, tokens - rows, width * rows, width, 100, draft_s, 1.0, 0.0)


def drafted_share(rows: int, **facts: float) -> float:
    """Of 400 steps that draft in vain."""
    guard, found = Guard(FLAT), []
    for _ in range(400):
        found.append(guard.drafts())
        guard.learn(many(PLAN if found[-1] else PLAIN_PLAN, rows, tokens=rows, **facts))  # type: ignore[arg-type]
    return float(np.mean(found))


def test_a_small_loss_of_many_rows_is_no_luck() -> None:
    """Behind by 3 % a step: one row may be unlucky so far, sixteen together are not."""

    assert drafted_share(1, draft_s=0.03) == 1.0
    assert drafted_share(16, draft_s=0.03) < 0.2


def test_drafts_that_bring_no_tree_are_a_certain_loss() -> None:
    assert drafted_share(1, draft_s=0.05, width=4) > 2 * drafted_share(1, draft_s=0.05, width=1)
    assert drafted_share(1, draft_s=0.05, width=1) < 0.15


def test_a_pause_ends_soon_when_half_the_rows_have_left() -> None:
    guard = Guard(FLAT)
    while guard.drafts():
        guard.learn(many(PLAN, 8, tokens=8, draft_s=1.0))
    for rows, left in ((8, SHORTEST - 1), (5, SHORTEST - 2), (4, FRESH - 1), (4, FRESH - 2)):
        guard.learn(many(PLAIN_PLAN, rows, tokens=rows))
        assert guard._left == left


@pytest.fixture
def trips() -> list[Round]:
    return []


def test_the_breaker_trips_on_the_account_s_rule_and_says_what_it_saw(trips: list[Round]) -> None:
    """rho = 1/3 over 3 levels: rho_eff = 1 - (2/3)^3 = 0.70, under 0.85, although drafting pays."""
    guard = Guard(COST, breaker_rho=0.85, on_trip=trips.append)
    drafted = decode(guard, BAD_ROUNDS * ROUND + TRIPPED, always(2))
    assert all(drafted[: BAD_ROUNDS * ROUND]) and not any(drafted[BAD_ROUNDS * ROUND :])
    (found,) = trips
    assert (found.rho, found.depth, found.tau) == pytest.approx((1 / 3, 3, 2))
    assert found.rho_eff == pytest.approx(1 - (2 / 3) ** 3)
    assert found.speed == pytest.approx(2 / 1.3, rel=1e-3)
    assert guard.drafts()  # the probe


def test_good_rounds_do_not_trip_it(trips: list[Round]) -> None:
    decode(Guard(COST, breaker_rho=0.6, on_trip=trips.append), 20 * ROUND, always(2))
    decode(Guard(COST, on_trip=trips.append), 20 * ROUND, always(2))
    assert not trips


def test_by_speed_it_trips_after_three_rounds_that_pauses_let_through(trips: list[Round]) -> None:
    """Slower by 4 %, which the short view takes for bad luck for long."""
    guard = Guard(COST, on_trip=trips.append)
    decode(guard, 4000, always(1), draft_s=-0.16)
    assert trips and trips[0].speed < 0.97


def test_reset_forgets_everything(trips: list[Round]) -> None:
    drafter = Nobody()
    controller = GuardedController(make_plan(drafter, StaticPolicy(Topology.chain(3)), 4), Guard(COST))
    decode(controller.guard, 100, always(1))
    controller.guard._left = 100
    assert controller.plan([]) is PLAIN_PLAN
    controller.reset()
    assert controller.plan([]).drafter is drafter and drafter.resets == 1
    fixed = FixedController(make_plan(drafter, StaticPolicy(Topology.chain(3)), 4))
    fixed.learn(outcome(PLAN, 1))
    fixed.reset()
    assert drafter.resets == 2


def test_trips_are_recorded_in_a_bounded_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEDUSA_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(deviations, "MAX_BYTES", 1000)
    for tau in range(30):
        deviations.record_trip(Round(0.5, 0.9, float(tau), 0.9, 3.0))
    data = deviations.deviations_file().read_bytes()
    lines = [json.loads(line) for line in data.splitlines()]
    assert len(data) <= 1000 and lines[-1]["tau"] == 29.0 and len(lines) >= 3
    assert {"time", "rho", "rho_eff", "tau", "speed", "depth"} == set(lines[0])
    monkeypatch.setenv("MEDUSA_HOME", str(tmp_path / "home" / "deviations.jsonl"))
    deviations.record_trip(Round(0.5, 0.9, 1.0, 0.9, 3.0))  # a file where the folder should be: decoding goes on
