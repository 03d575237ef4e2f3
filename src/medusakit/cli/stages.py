"""Bars of long stages (training, benches): how far, how fast, how long still; and the line at the end of each."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Protocol

from medusakit.cli.ui import Ui

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

LOG_EVERY_S = 30.0


class StageProgress(Protocol):
    """What a stage reports; train/progress.py describes the fields."""

    @property
    def stage(self) -> str: ...
    @property
    def done(self) -> int: ...
    @property
    def total(self) -> int: ...
    @property
    def unit(self) -> str: ...
    @property
    def rate(self) -> float: ...
    @property
    def remaining_s(self) -> float | None: ...
    @property
    def note(self) -> str: ...
    @property
    def finished(self) -> bool: ...


class StageBars:
    """An `on_progress` callback. A bar per stage; in a pipe a line now and then; --quiet: only ends."""

    def __init__(self, ui: Ui, clock: Callable[[], float] = time.monotonic) -> None:
        self._ui = ui
        self._clock = clock
        self._bar: Progress | None = None
        self._task: TaskID | None = None
        self._stage = ""
        self._last = float("-inf")

    def __enter__(self) -> StageBars:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end_bar()

    def __call__(self, progress: StageProgress) -> None:
        if progress.stage != self._stage:
            self._end_bar()
            self._stage, self._last = progress.stage, float("-inf")
        if progress.finished:
            self._end_bar()
            parts = (f"{progress.stage:<10}", amount(progress), progress.note)
            self._ui.line("  ".join(part for part in parts if part))
        elif self._ui.err.is_terminal and not self._ui.quiet:
            self._draw(progress)
        elif self._clock() - self._last >= LOG_EVERY_S:
            self._last = self._clock()
            parts = (f"{progress.stage:<10} {amount(progress)}", pace(progress), progress.note)
            self._ui.note(" · ".join(part for part in parts if part))

    def _draw(self, progress: StageProgress) -> None:
        if self._bar is None:
            self._bar = self._ui.stage_bar()
            self._bar.start()
            self._task = self._bar.add_task(progress.stage, total=progress.total or None, amount="", pace="", note="")
        assert self._task is not None
        self._bar.update(
            self._task,
            completed=progress.done,
            total=progress.total or None,
            amount=amount(progress),
            pace=pace(progress),
            note=progress.note,
        )

    def _end_bar(self) -> None:
        if self._bar is not None:
            self._bar.stop()
        self._bar = self._task = None


def amount(progress: StageProgress) -> str:
    """E.g. `12,000/40,000 tokens`; nothing for a stage that counts nothing."""
    if not progress.unit:
        return ""
    total = f"/{progress.total:,}" if progress.total else ""
    return f"{progress.done:,}{total} {progress.unit}"


def pace(progress: StageProgress) -> str:
    """E.g. `412/s · 1m08s left`; what is unknown is left out."""
    parts = [f"{progress.rate:,.0f}/s" if progress.rate >= 10 else f"{progress.rate:.1f}/s"] if progress.rate else []
    if progress.remaining_s is not None:
        parts.append(f"{duration(progress.remaining_s)} left")
    return " · ".join(parts)


def duration(seconds: float) -> str:
    """
    >>> duration(8.2), duration(68), duration(7300)
    ('8s', '1m08s', '2h01m')
    """
    whole = round(seconds)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02d}s"
    return f"{whole // 3600}h{whole % 3600 // 60:02d}m"
