"""Continuous batching: jobs join and leave between steps, on one thread that owns the engine."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol

from medusakit.engine.engine import Engine
from medusakit.engine.jobs import Job, Listener, SchedulerSettings, Snapshot
from medusakit.engine.speculation import Speculation
from medusakit.engine.step import Outcome


class HasEngine(Protocol):
    """An `LLM` (which lies above this package), or anything else with an engine."""

    @property
    def engine(self) -> Engine: ...


class Ticket:
    """A job that was submitted."""

    id: int

    def cancel(self) -> None:
        """End the job within one step; from any thread, also after its end. Its last update has no events."""
        raise NotImplementedError


class Scheduler:
    """From `start` to `close` the LLM belongs to the scheduler's thread: nobody else may decode with it.

    on_step  told every step's outcome (counts and times), on the inference thread
    """

    def __init__(
        self,
        llm: HasEngine,
        settings: SchedulerSettings | None = None,
        *,
        clock: Callable[[], float] = time.perf_counter,
        on_step: Callable[[Outcome], None] | None = None,
    ) -> None:
        raise NotImplementedError

    def start(self) -> None:
        """Start the inference thread."""
        raise NotImplementedError

    def submit(self, job: Job, listener: Listener) -> Ticket:
        """Queue a job; from any thread. The listener is called on the inference thread, in order, and must return at
        once (hand over to a queue or an event loop); if it raises, its job ends and the others go on.

        Raises at once, the listener then never called: UsageError for an empty prompt, an id outside the vocabulary or
        a parameter out of range, ContextLengthError, QueueFullError (with `retry_after_s`), DrainingError.
        """
        raise NotImplementedError

    def snapshot(self) -> Snapshot:
        """The state as plain numbers; from any thread, never waits for a step."""
        raise NotImplementedError

    def set_speculation(self, on: bool) -> None:
        """Switch drafting off (every job decodes plainly from its next step) or on again."""
        raise NotImplementedError

    def replace_drafting(self, parts: Speculation) -> None:
        """Other heads or trees from the next step on, for running jobs too; returns when it is done."""
        raise NotImplementedError

    def tick(self) -> bool:
        """One turn of the loop: admit, prefill a chunk, step, tell. False: there was nothing to do. The thread calls
        it; tests call it instead of `start`."""
        raise NotImplementedError

    def drain(self, timeout_s: float) -> bool:
        """Take no new jobs and wait for the open ones. False: some were still open after `timeout_s`."""
        raise NotImplementedError

    def close(self) -> None:
        """Cancel what is open (listeners are told) and end the thread. Rows and cached KV are given back."""
        raise NotImplementedError
