"""T(n): minimum of repeats, remembered only when the machine was steady, measured anew when today is clearly faster."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from engine_fakes import VOCAB
from medusakit.engine import measure
from medusakit.engine.measure import CONTEXT, FRESH_S, CostWatch, measure_steps, remembered_cost
from medusakit.runtimes.reference import ReferenceRuntime, random_reference
from medusakit.tree.topology import Topology


def tables(*arguments: Any) -> Any:
    return dict(remembered_cost(*arguments).tables)


class TimedRuntime:
    """The reference runtime, whose forward passes turn a clock."""

    def __init__(self, seconds_per_pass: Iterator[float]) -> None:
        self.inner: ReferenceRuntime = random_reference(0, VOCAB, context_length=64)
        self.now = 0.0
        self._seconds = seconds_per_pass

    def forward(self, trees: object) -> object:
        self.now += next(self._seconds)
        return self.inner.forward(trees)  # type: ignore[arg-type]

    def __getattr__(self, name: str) -> object:
        return getattr(self.inner, name)


def test_the_best_reading_of_every_size_counts() -> None:
    runtime = TimedRuntime(iter([3.0, 5.0, 2.0, 9.0]))
    times = measure_steps(runtime, sizes=(1, 4), context=8, budget_s=16, clock=lambda: runtime.now)  # type: ignore[arg-type]
    assert times.seconds == {1: 2.0, 4: 5.0}
    assert not times.steady
    assert runtime.inner.rows == ()


def test_sizes_past_the_context_are_left_out() -> None:
    times = measure_steps(
        random_reference(0, VOCAB, context_length=12), sizes=(1, 4, 16), context=8, every_size=True, budget_s=0
    )
    assert list(times.seconds) == [1, 4]


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MEDUSA_HOME", str(tmp_path))
    return tmp_path / "cost"


def steps(monkeypatch: pytest.MonkeyPatch, *tables: measure.StepTimes) -> None:
    given = iter(tables)
    monkeypatch.setattr(measure, "measure_steps", lambda runtime, **settings: next(given))
    monkeypatch.setattr(measure, "LONG_CONTEXT", 0)


def test_a_steady_table_is_remembered(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runtime = random_reference(0, VOCAB, context_length=512)
    today = measure.StepTimes({1: 1.0}, True)
    steps(monkeypatch, measure.StepTimes({1: 1.0, 4: 2.0}, True), today)
    assert tables(runtime, "model", 2) == {CONTEXT: {1: 1.0, 4: 2.0}}
    assert tables(runtime, "model", 2) == {CONTEXT: {1: 1.0, 4: 2.0}}
    (file,) = cache.iterdir()
    assert json.loads(file.read_text())["tables"] == {str(CONTEXT): {"1": 1.0, "4": 2.0}}


def test_a_busy_machine_s_table_is_good_for_ten_minutes(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runtime, now = random_reference(0, VOCAB, context_length=512), [1000.0]
    busy, today = measure.StepTimes({1: 9.0}, False), measure.StepTimes({1: 9.0}, True)
    steps(monkeypatch, busy, today, measure.StepTimes({1: 8.0}, True), today)

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
    fast = measure.StepTimes({1: 1.0, 8: 2.0}, True)
    steps(monkeypatch, measure.StepTimes({1: 5.0, 8: 7.0}, True), measure.StepTimes(today, True), fast)
    tables(runtime, "model", 2)
    assert tables(runtime, "model", 2) == {CONTEXT: {1: 1.0, 8: 2.0}}


def test_a_table_that_rises_otherwise_today_is_measured_anew(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Slower as a whole says only that the machine is busy. Dearer nodes beside plain passes decide other budgets."""
    runtime = random_reference(0, VOCAB, context_length=512)
    slower, bent = measure.StepTimes({1: 1.3, 8: 2.6}, True), measure.StepTimes({1: 1.0, 8: 2.4}, True)
    steps(monkeypatch, measure.StepTimes({1: 1.0, 8: 2.0}, True), slower, bent, bent)
    tables(runtime, "model", 2)
    assert tables(runtime, "model", 2) == {CONTEXT: {1: 1.0, 8: 2.0}}
    assert tables(runtime, "model", 2) == {CONTEXT: {1: 1.0, 8: 2.4}}


def test_what_a_quiet_machine_said_outlives_a_busy_one(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runtime = random_reference(0, VOCAB, context_length=512)
    busy, quiet = measure.StepTimes({1: 1.0, 8: 2.4}, False), measure.StepTimes({1: 1.0, 8: 2.0}, True)
    faster = measure.StepTimes({1: 0.5, 8: 1.0}, False)
    steps(monkeypatch, quiet, busy, busy, faster, faster)
    tables(runtime, "model", 2)
    assert tables(runtime, "model", 2) == {CONTEXT: {1: 1.0, 8: 2.0}}
    assert tables(runtime, "model", 2) == {CONTEXT: {1: 0.5, 8: 1.0}}


def test_a_process_that_lives_on_looks_again_and_takes_what_it_finds(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime, now = random_reference(0, VOCAB, context_length=512), [1000.0]
    busy, quiet = measure.StepTimes({1: 9.0, 8: 30.0}, False), measure.StepTimes({1: 8.0, 8: 10.0}, True)
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
    steps(monkeypatch, measure.StepTimes({1: 1.0}, True))
    assert tables(random_reference(0, VOCAB, context_length=512), "model", 2) == {CONTEXT: {1: 1.0}}


TABLES = ("{}", '{"1": 1.0}', '{"256": {}}', '{"256": {"2": 1.0}}', '{"256": {"1": 0}}', '{"256": {"1": -1.0}}',
          '{"256": {"1": null}}', '{"256": {"1": NaN}}', '{"256": {"x": 1}}', '{"0": {"1": 1}}')  # fmt: skip


@pytest.mark.parametrize(
    "content", ["{", "[]", "{}", "\x00", *(f'{{"steady": true, "time": 0, "tables": {table}}}' for table in TABLES)]
)
def test_a_damaged_table_is_measured_anew(content: str, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runtime = random_reference(0, VOCAB, context_length=512)
    monkeypatch.setattr(measure, "measure_steps", lambda *_, **__: measure.StepTimes({1: 1.0, 4: 2.0}, True))
    monkeypatch.setattr(measure, "LONG_CONTEXT", 0)
    tables(runtime, "model", 2)
    (file,) = cache.iterdir()
    file.write_text(content)
    assert tables(runtime, "model", 2) == {CONTEXT: {1: 1.0, 4: 2.0}}
    assert json.loads(file.read_text())["tables"] == {str(CONTEXT): {"1": 1.0, "4": 2.0}}


class Guesser:
    """A drafter that takes a second a call."""

    max_depth = 5

    def __init__(self, clock: list[float]) -> None:
        self.clock, self.shapes = clock, list[object]()

    def propose(self, states: object, shape: object) -> list[object]:
        self.clock[0] += 1.0
        self.shapes.append(shape)
        return []


def test_a_draft_costs_by_its_levels() -> None:
    clock = [0.0]
    drafter = Guesser(clock)
    topology = Topology.from_parents([-1, 0, 1, 0, 2, 4])
    seconds = measure.draft_seconds(drafter, topology, 8, clock=lambda: clock[0])  # type: ignore[arg-type]
    assert seconds.tolist() == [0.0, 0.25, 0.5, 0.5, 0.75, 1.0]
    assert measure.draft_seconds(drafter, topology.prefix(1), 8).tolist() == [0.0]  # type: ignore[arg-type]


def test_a_long_context_is_measured_with_few_sizes() -> None:
    runtime = random_reference(0, VOCAB, context_length=4096)
    measured, _ = measure.measure_cost(runtime)
    assert list(measured) == [CONTEXT, measure.LONG_CONTEXT]
    long_sizes = list(measured[measure.LONG_CONTEXT])
    assert long_sizes and long_sizes == list(measure.LONG_SIZES[: len(long_sizes)])
    assert runtime.rows == ()
    small, _ = measure.measure_cost(random_reference(0, VOCAB, context_length=300))
    assert list(small) == [CONTEXT]


def test_sizes_that_no_tree_is_worth_are_not_measured() -> None:
    """T(4) is five plain passes: 8 is not tried. A slow model: the time is up before."""
    runtime = TimedRuntime(iter([1.0, 2.0, 5.0] * 9))
    times = measure_steps(runtime, sizes=(1, 2, 4, 8), context=8, budget_s=10, clock=lambda: runtime.now)  # type: ignore[arg-type]
    assert times.seconds == {1: 1.0, 2: 2.0, 4: 5.0} and times.steady
    slow = TimedRuntime(iter([10.0, 11.0, 12.0]))
    times = measure_steps(slow, sizes=(1, 2, 4, 8), context=8, budget_s=15, clock=lambda: slow.now)  # type: ignore[arg-type]
    assert times.seconds == {1: 10.0, 2: 11.0} and not times.steady
