"""The golden figures over the last minute, from what steps bring: kept by seconds, so that a minute is 60 sums."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from medusakit.engine.step import Outcome
from medusakit.tree.search import rho_eff

LENGTH_S = 60


@dataclass(slots=True)
class _Second:
    at: int
    rows: int = 0
    tokens: int = 0
    drafted_rows: int = 0
    offered: int = 0
    accepted: int = 0
    forward_s: float = 0.0
    total_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Minute:
    """None where nothing was decoded (or drafted) in it.

    tokens_per_step    emitted by a row in a step
    rho                accepted / offered depths of rows that drafted; rho_eff = 1 - (1 - rho)^D, D their mean depth
    verify_time_ratio  share of the steps' time that the model's passes take
    """

    tokens_per_step: float | None = None
    rho: float | None = None
    rho_eff: float | None = None
    verify_time_ratio: float | None = None


class Window:
    """Told on the inference thread, read on others."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._seconds: deque[_Second] = deque()
        self._lock = threading.Lock()

    def add(self, outcome: Outcome) -> None:
        with self._lock:
            now = self._current()
            now.rows += outcome.num_rows
            now.tokens += outcome.tokens
            now.forward_s += outcome.forward_s
            now.total_s += outcome.seconds
            if outcome.offered:
                now.drafted_rows += outcome.num_rows
                now.offered += outcome.offered
                now.accepted += outcome.accepted

    def minute(self) -> Minute:
        with self._lock:
            self._forget()
            rows, tokens = sum(one.rows for one in self._seconds), sum(one.tokens for one in self._seconds)
            offered, accepted = (sum(one.offered for one in self._seconds), sum(one.accepted for one in self._seconds))
            drafted_rows = sum(one.drafted_rows for one in self._seconds)
            forward_s = sum(one.forward_s for one in self._seconds)
            total_s = sum(one.total_s for one in self._seconds)
        rho = accepted / offered if offered else None
        effective = None if rho is None else rho_eff(rho, offered / drafted_rows)
        return Minute(tokens / rows if rows else None, rho, effective, forward_s / total_s if total_s > 0 else None)

    def _current(self) -> _Second:
        second = int(self._clock())
        if not self._seconds or self._seconds[-1].at != second:
            self._forget()
            self._seconds.append(_Second(second))
        return self._seconds[-1]

    def _forget(self) -> None:
        first = int(self._clock()) - LENGTH_S
        while self._seconds and self._seconds[0].at <= first:
            self._seconds.popleft()
