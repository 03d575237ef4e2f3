"""T(n) is remembered only when the machine was steady, and measured anew when today is clearly faster."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from engine_fakes import VOCAB
from medusakit.engine import measure, remembered
from medusakit.engine.measure import CONTEXT, StepTimes
from medusakit.engine.remembered import FRESH_S, CostWatch, remembered_cost
from medusakit.runtimes.reference import random_reference


def tables(*arguments: Any) -> Any:
    return dict(remembered_cost(*arguments).tables)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MEDUSA_HOME", str(tmp_path))
    return tmp_path / "cost"


def measured(monkeypatch: pytest.MonkeyPatch, times: Callable[..., StepTimes]) -> None:
    """At one context, whole tables and probes alike."""
    for module in (measure, remembered):
        monkeypatch.setattr(module, "measure_steps", times)
    monkeypatch.setattr(measure, "LONG_CONTEXT", 0)


def steps(monkeypatch: pytest.MonkeyPatch, *tables: StepTimes) -> None:
    given = iter(tables)
    measured(monkeypatch, lambda runtime, **settings: next(given))


def test_a_steady_table_is_remembered(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runtime = random_reference(0, VOCAB, context_length=512)
    today = StepTimes({1: 1.0}, True)
    steps(monkeypatch, StepTimes({1: 1.0, 4: 2.0}, True), today)
    assert tables(runtime, "model", 2) == {CONTEXT: {1: 1.0, 4: 2.0}}
    assert tables(runtime, "model", 2) == {CONTEXT: {1: 1.0, 4: 2.0}}
    (file,) = cache.iterdir()
    assert json.loads(file.read_text())["tables"] == {str(CONTEXT): {"1": 1.0, "4": 2.0}}


def test_a_busy_machine_s_table_is_good_for_ten_minutes(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runtime, now = random_reference(0, VOCAB, context_length=512), [1000.0]
    busy, today = StepTimes({1: 9.0}, False), StepTimes({1: 9.0}, True)
    steps(monkeypatch, busy, today, StepTimes({1: 8.0}, True), today)

    def table() -> Any:
        return dict(remembered_cost(runtime, "model", 2, clock=lambda: now[0]).tables)

    assert table() == {CONTEXT: {1: 9.0}}
    now[0] += 599
    assert table() == {CONTEXT: {1: 9.0}}
    now[0] += 2
    assert table() == {CONTEXT: {1: 8.0}}
    now[0] += 1e6
    assert table() == {CONTEXT: {1: 8.0}}


@pytest.mark.parametrize("today", [{1: 1.0, 8: 7.0}, {1: 5.0, 8: 3.0}])
def test_a_table_that_today_beats_is_measured_anew(
    today: dict[int, float], cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In its plain passes, or in those of a small tree, which would be thought too dear to try."""
    runtime = random_reference(0, VOCAB, context_length=512)
    fast = StepTimes({1: 1.0, 8: 2.0}, True)
    steps(monkeypatch, StepTimes({1: 5.0, 8: 7.0}, True), StepTimes(today, True), fast)
    tables(runtime, "model", 2)
    assert tables(runtime, "model", 2) == {CONTEXT: {1: 1.0, 8: 2.0}}


def test_a_table_that_rises_otherwise_today_is_measured_anew(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Slower as a whole says only that the machine is busy. Dearer nodes beside plain passes decide other budgets."""
    runtime = random_reference(0, VOCAB, context_length=512)
    slower, bent = StepTimes({1: 1.3, 8: 2.6}, True), StepTimes({1: 1.0, 8: 2.4}, True)
    steps(monkeypatch, StepTimes({1: 1.0, 8: 2.0}, True), slower, bent, bent)
    tables(runtime, "model", 2)
    assert tables(runtime, "model", 2) == {CONTEXT: {1: 1.0, 8: 2.0}}
    assert tables(runtime, "model", 2) == {CONTEXT: {1: 1.0, 8: 2.4}}


def test_what_a_quiet_machine_said_outlives_a_busy_one(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runtime = random_reference(0, VOCAB, context_length=512)
    busy, quiet = StepTimes({1: 1.0, 8: 2.4}, False), StepTimes({1: 1.0, 8: 2.0}, True)
    faster = StepTimes({1: 0.5, 8: 1.0}, False)
    steps(monkeypatch, quiet, busy, busy, faster, faster)
    tables(runtime, "model", 2)
    assert tables(runtime, "model", 2) == {CONTEXT: {1: 1.0, 8: 2.0}}
    assert tables(runtime, "model", 2) == {CONTEXT: {1: 0.5, 8: 1.0}}


def test_a_process_that_lives_on_looks_again_and_takes_what_it_finds(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime, now = random_reference(0, VOCAB, context_length=512), [1000.0]
    busy, quiet = StepTimes({1: 9.0, 8: 30.0}, False), StepTimes({1: 8.0, 8: 10.0}, True)
    steps(monkeypatch, busy, quiet, quiet)
    cost = remembered_cost(runtime, "model", 2, clock=lambda: now[0])
    held, watch = cost, CostWatch(runtime, "model", 2, cost, clock=lambda: now[0])
    now[0] += FRESH_S - 1
    watch()
    assert held.seconds(8) == 30.0
    now[0] += 1
    watch()
    watch()  # too soon for another look
    assert held.seconds(8) == 10.0
    now[0] += FRESH_S
    watch()  # a look that finds the table true
    assert held.seconds(8) == 10.0


def test_an_unwritable_cache_only_costs_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("MEDUSA_HOME", str(tmp_path / "file"))
    steps(monkeypatch, StepTimes({1: 1.0}, True))
    assert tables(random_reference(0, VOCAB, context_length=512), "model", 2) == {CONTEXT: {1: 1.0}}


TABLES = ("{}", '{"1": 1.0}', '{"256": {}}', '{"256": {"2": 1.0}}', '{"256": {"1": 0}}', '{"256": {"1": -1.0}}',
          '{"256": {"1": null}}', '{"256": {"1": NaN}}', '{"256": {"x": 1}}', '{"0": {"1": 1}}')  # fmt: skip


@pytest.mark.parametrize(
    "content", ["{", "[]", "{}", "\x00", *(f'{{"steady": true, "time": 0, "tables": {table}}}' for table in TABLES)]
)
def test_a_damaged_table_is_measured_anew(content: str, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runtime = random_reference(0, VOCAB, context_length=512)
    measured(monkeypatch, lambda *_, **__: StepTimes({1: 1.0, 4: 2.0}, True))
    tables(runtime, "model", 2)
    (file,) = cache.iterdir()
    file.write_text(content)
    assert tables(runtime, "model", 2) == {CONTEXT: {1: 1.0, 4: 2.0}}
    assert json.loads(file.read_text())["tables"] == {str(CONTEXT): {"1": 1.0, "4": 2.0}}
