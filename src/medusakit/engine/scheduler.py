"""Continuous batching: jobs join and leave between steps, on one thread that owns the engine.

A turn of its loop: changes from outside; what was cancelled or is late ends; waiting jobs take free rows, keys in turn;
one chunk of one prompt is run; all running jobs make one step together and are told of it.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from typing import Protocol

from medusakit.engine.batch import Batch
from medusakit.engine.controller import GuardedController
from medusakit.engine.drafting import DrafterFailure
from medusakit.engine.engine import Engine
from medusakit.engine.jobs import Job, Listener, SchedulerSettings, Snapshot
from medusakit.engine.open_job import OpenJob, Ticket, late
from medusakit.engine.prefixes import PrefixCache
from medusakit.engine.speculation import Speculation
from medusakit.engine.step import Outcome
from medusakit.engine.switch import Switch
from medusakit.engine.totals import Counters
from medusakit.engine.waiting import FairQueue, Room
from medusakit.errors import DrainingError, UsageError

log = logging.getLogger(__name__)
IDLE_S = 30.0


class HasEngine(Protocol):
    """An `LLM` (which lies above this package), or anything else with an engine."""

    @property
    def engine(self) -> Engine: ...


class Scheduler:
    """From `start` to `close` the LLM belongs to the scheduler's thread: nobody else may decode with it.

    on_step  told every step's outcome (counts and times), on the inference thread
    on_idle  called there whenever nothing was open for another `idle_s`; jobs that come meanwhile wait for it
    """

    def __init__(
        self,
        llm: HasEngine,
        settings: SchedulerSettings | None = None,
        *,
        clock: Callable[[], float] = time.perf_counter,
        on_step: Callable[[Outcome], None] | None = None,
        on_idle: Callable[[], None] | None = None,
        idle_s: float = IDLE_S,
    ) -> None:
        self.settings = settings or SchedulerSettings()
        runtime = llm.engine.runtime
        rows = runtime.capabilities.max_rows
        if not 1 <= self.settings.max_rows <= rows:
            raise UsageError(
                f"max_rows is {self.settings.max_rows}; the model was loaded with room for 1 to {rows}",
                hint=f"LLM.load(..., max_rows={self.settings.max_rows})",
            )
        self._switch = Switch(llm.engine.controller, self._drafter_failed)
        self._engine = Engine(runtime, llm.engine.tokenizer, self._switch, clock=clock)
        self._clock, self._on_step = clock, on_step
        self._on_idle, self._idle_s = on_idle, idle_s
        cache, chunk = PrefixCache.of(self.settings), self.settings.prefill_chunk
        self._batch = Batch(self._engine, cache, chunk=chunk, clock=clock, on_end=self._ended)
        self._wake = threading.Condition()  # guards all below
        self._waiting = FairQueue[OpenJob]()
        self._changes: list[Callable[[], None]] = []
        self._room = Room(self.settings.max_rows, self.settings.max_queue)
        self._draining = self._closing = False
        self._ids = count(1)
        self._thread: threading.Thread | None = None
        self._published = self._state()

    @property
    def capacity(self) -> int:
        """Jobs that may be open together."""
        return self._room.capacity

    def start(self) -> None:
        """Start the inference thread."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="medusa-inference", daemon=True)
            self._thread.start()

    def submit(self, job: Job, listener: Listener) -> Ticket:
        """Queue a job; from any thread. The listener is called on the inference thread, in order, and must return at
        once (hand over to a queue or an event loop); if it raises, its job ends and the others go on.

        Raises at once, the listener then never called: UsageError for an empty prompt, an id outside the vocabulary or
        a parameter out of range, ContextLengthError, QueueFullError (with `retry_after_s`), DrainingError.
        """
        self._engine.check(job.ids, job.params)
        with self._wake:
            if self._draining:
                raise DrainingError("the server is shutting down and takes no new requests", hint="another server")
            self._room.take()
            opened = OpenJob(next(self._ids), job, listener, self._clock())
            self._waiting.push(job.key, opened)
            self._wake.notify_all()
        return Ticket(opened, self._nudge)

    def snapshot(self) -> Snapshot:
        """The state as plain numbers; from any thread, never waits for a step."""
        now = self._clock()
        with self._wake:
            waiting = tuple(job.state(now) for job in self._waiting)
            jobs = (*self._published.jobs, *waiting)
            return replace(self._published, waiting=len(waiting), jobs=jobs, draining=self._draining)

    def set_speculation(self, on: bool) -> None:
        """Switch drafting off (every job decodes plainly from its next step) or on again, drafters that failed
        included."""

        def change() -> None:
            self._switch.on = on
            if on:
                self._switch.forgive()

        self._between_steps(change)

    def replace_drafting(self, parts: Speculation) -> None:
        """Other heads or trees from the next step on, for running jobs too; what was learnt with the old ones is
        dropped. Returns when it is done."""

        def change() -> None:
            self._switch.replace(parts.controller)
            self._engine.reset_verification()

        self._between_steps(change)

    def begin_counting(self, on_step: Callable[[Outcome], None] | None = None) -> None:
        """Drop counts, cached KV and what was learnt so far, which was a warm-up's; tell `on_step` of every step from
        now on."""

        def change() -> None:
            self._batch.counters, self._batch.cache = Counters(), PrefixCache.of(self.settings)
            self._engine.reset_verification()
            self._switch.forgive()  # a drafter that failed will again, and is counted then
            self._on_step = on_step
            self._published = self._state()

        self._between_steps(change)

    def tick(self) -> bool:
        """One turn of the loop: admit, prefill a chunk, step, tell. False: there was nothing to do. The thread calls
        it; tests call it instead of `start`."""
        self._apply_changes()
        self._batch.end_due()
        self._end_waiting()
        self._admit()
        busy = bool(self._batch.jobs)
        self._batch.prefill()
        outcome = self._batch.step()
        self._published = self._state()
        if outcome is not None and self._on_step is not None:
            self._on_step(outcome)
        return busy

    def drain(self, timeout_s: float) -> bool:
        """Take no new jobs and wait for the open ones. False: some were still open after `timeout_s`."""
        with self._wake:
            self._draining = True
            return self._wake.wait_for(lambda: not self._room.num_open, min(timeout_s, threading.TIMEOUT_MAX))

    def close(self) -> None:
        """Cancel what is open (listeners are told) and end the thread. Rows and cached KV are given back."""
        with self._wake:
            self._draining = self._closing = True
            self._wake.notify_all()
        if self._thread is not None:
            self._thread.join()
        else:
            self._end()

    def _run(self) -> None:
        while not self._closing:
            try:
                busy = self.tick()
            except Exception as error:
                log.exception("the inference thread goes on after a fault; its jobs end")
                self._batch.fail_all(error)
                busy = False
            if not busy:
                self._wait()
        self._end()

    def _wait(self) -> None:
        """Until there is something to do, or nothing was for a while and that is told."""
        with self._wake:
            limit_s = self._idle_s if self._on_idle else None
            called = self._wake.wait_for(lambda: self._closing or self._changes or len(self._waiting), limit_s)
        if not called and self._on_idle:
            try:
                self._on_idle()
            except Exception:
                log.exception("what is done while nothing is open failed; the inference thread goes on")

    def _end(self) -> None:
        self._batch.cancel_all()
        with self._wake:
            waiting = self._waiting.take(lambda _: True)
        for job in waiting:
            self._batch.end(job)
        self._apply_changes()
        self._batch.cache.clear()
        self._published = self._state()

    def _nudge(self) -> None:
        with self._wake:
            self._wake.notify_all()

    def _between_steps(self, change: Callable[[], None]) -> None:
        """Have the inference thread do it; returns when it is done (at once where there is no thread yet)."""
        done = threading.Event()
        with self._wake:
            threaded = self._thread is not None and not self._closing
            self._changes += [change, done.set]
            self._wake.notify_all()
        if not threaded:
            self._apply_changes()
        elif threading.current_thread() is not self._thread:  # which a listener may be on: its change comes next
            done.wait()

    def _apply_changes(self) -> None:
        with self._wake:
            changes, self._changes = self._changes, []
        for change in changes:
            change()

    def _end_waiting(self) -> None:
        now = self._clock()
        with self._wake:
            due = self._waiting.take(lambda job: job.cancelled or job.is_late(now))
        for job in due:
            self._batch.end(job, None if job.cancelled else late(job))

    def _admit(self) -> None:
        while len(self._batch.jobs) < self.settings.max_rows:
            with self._wake:
                if not len(self._waiting):
                    return
                job = self._waiting.pop()
            self._batch.join(job)

    def _ended(self, job: OpenJob) -> None:
        with self._wake:
            self._room.leave(None if job.joined is None else self._clock() - job.joined)
            self._wake.notify_all()

    def _drafter_failed(self, failure: DrafterFailure) -> None:
        name, requests = failure.drafter.name, self._batch.requests(failure.rows)
        self._batch.counters.drafter_failed(name)
        log.error(
            "drafter %s failed and drafts no more until heads are swapped or speculation is switched on; "
            "requests %s go on plainly",
            name,
            ", ".join(requests) or "none",
            exc_info=failure.error,
            extra={"fields": {"drafter": name, "request_ids": requests}},
        )

    def _state(self) -> Snapshot:
        runtime, now, spec = self._engine.runtime, self._clock(), self._engine.runtime.spec
        positions = sum(runtime.length(row) for row in runtime.rows)
        inner = self._switch.inner
        guard = inner.guard if isinstance(inner, GuardedController) else None
        return Snapshot(
            running=len(self._batch.jobs),
            waiting=0,
            max_rows=self.settings.max_rows,
            draining=self._draining,
            jobs=tuple(job.state(now) for job in self._batch.jobs),
            kv_positions=positions,
            kv_capacity=self.settings.max_rows * runtime.capabilities.max_context,
            kv_row_bytes=8 * positions * spec.num_layers * spec.num_kv_heads * spec.head_dim,
            cache=self._batch.cache.state(),
            totals=self._batch.counters.totals(),
            speculation=self._switch.on,
            drafting=self._switch.works and (guard is None or guard.drafts()),
            guard_round=guard.last_round if guard else None,
            broken=self._switch.broken,
            eager=runtime.capabilities.eager,
        )
