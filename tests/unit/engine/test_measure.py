"""T(n): the best reading of every size; T_draft: by levels."""

from __future__ import annotations

from collections.abc import Iterator

from engine_fakes import VOCAB
from medusakit.engine import measure
from medusakit.engine.measure import CONTEXT, measure_steps
from medusakit.runtimes.reference import ReferenceRuntime, random_reference
from medusakit.tree.topology import Topology


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
