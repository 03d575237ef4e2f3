"""What a long stage tells whoever watches it: one value per report, never a print."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a stage is.

    done, total  in the stage's own unit (`unit`); total 0: unknown
    rate         units per second of this run, 0.0 while unknown
    remaining_s  expected seconds to the end, None while unknown (also for what goes on beyond the total)
    note         one line for people; with `finished` it is the stage's expectation line
    """

    stage: str
    done: int
    total: int
    unit: str = "tokens"
    rate: float = 0.0
    remaining_s: float | None = None
    note: str = ""
    finished: bool = False


OnProgress = Callable[[Progress], None]


def ignore(progress: Progress) -> None:
    """The callback of whoever does not watch."""


@dataclass(slots=True)
class Meter:
    """Reports a stage at most every `every_s` seconds, with the rate of this run (work found done does not count)."""

    stage: str
    total: int
    on_progress: OnProgress
    unit: str = "tokens"
    every_s: float = 0.5
    clock: Callable[[], float] = time.monotonic
    _start: float = field(init=False)
    _last: float = field(init=False, default=float("-inf"))
    _first_done: int | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        self._start = self.clock()

    @property
    def elapsed_s(self) -> float:
        return self.clock() - self._start

    def report(self, done: int, note: str = "") -> None:
        """Tell where the stage is, unless that was told a moment ago."""
        now = self.clock()
        if self._first_done is None:
            self._first_done = done
        if now - self._last >= self.every_s:
            self._last = now
            self.on_progress(self._value(done, now, note, finished=False))

    def finish(self, done: int, note: str) -> None:
        """The last report, never left out."""
        self.on_progress(self._value(done, self.clock(), note, finished=True))

    def _value(self, done: int, now: float, note: str, *, finished: bool) -> Progress:
        made = done - (done if self._first_done is None else self._first_done)
        rate = made / (now - self._start) if now > self._start else 0.0
        remaining = (self.total - done) / rate if rate > 0 and self.total > done else None
        return Progress(self.stage, done, self.total, self.unit, rate, 0.0 if finished else remaining, note, finished)
