"""The jobs that have a row: they join, their prompts come in chunks, they advance together, each leaves when it ends.

Single-threaded: everything here happens on the thread that owns the engine.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection

from medusakit.engine.engine import Engine
from medusakit.engine.events import GenerationResult, GenerationStats, TokenEvent
from medusakit.engine.jobs import Job, Update
from medusakit.engine.open_job import OpenJob, late
from medusakit.engine.prefixes import PrefixCache
from medusakit.engine.session import Session
from medusakit.engine.step import Outcome
from medusakit.engine.totals import Counters
from medusakit.errors import MedusaError, RuntimeFailure
from medusakit.verify.rules import deciding_rule

log = logging.getLogger(__name__)
ALONE = 4  # chunks of a prompt run at once while nobody else decodes
OLDEST = 4  # every so many chunks the oldest prompt has its turn, not the one with the least left


class Batch:
    """Rows of the engine that are given to jobs.

    chunk     prompt tokens run between two steps
    on_end    told every job that has ended, after its last update
    """

    def __init__(
        self,
        engine: Engine,
        cache: PrefixCache,
        *,
        chunk: int,
        clock: Callable[[], float],
        on_end: Callable[[OpenJob], None],
    ) -> None:
        self.engine, self.cache, self.counters = engine, cache, Counters()
        self._chunk, self._clock, self._on_end = chunk, clock, on_end
        self.jobs: list[OpenJob] = []
        self._turn = 0

    def join(self, job: OpenJob) -> None:
        """Give the job a row that begins with what the cache holds of its prompt."""
        self.jobs.append(job)
        job.joined = self._clock()
        wanted = job.job
        max_nodes = wanted.budget if wanted.speculation else 1
        try:
            # scores of a prompt come from running it
            saved = None if wanted.params.score_prompt else self.cache.find(wanted.key, wanted.ids)
            job.prefill = self.engine.begin(
                wanted.ids, wanted.params, saved=saved, max_nodes=max_nodes, plan=wanted.plan
            )
        except Exception as error:
            self._fail(job, error)

    def end_due(self) -> None:
        """End what was cancelled or has had its time."""
        now = self._clock()
        for job in list(self.jobs):
            self._end_if_due(job, now)

    def prefill(self) -> None:
        """A chunk of one prompt; more of it while nobody else decodes. The prompt with the least left is first, so that
        a long one does not hold up the short ones."""
        prompts = [job for job in self.jobs if job.prefill is not None]
        if not prompts:
            return
        self._turn += 1
        job = prompts[0] if self._turn % OLDEST == 0 else min(prompts, key=_num_left)
        assert job.prefill is not None
        try:
            chunk = self._chunk if self.engine.active else ALONE * self._chunk
            session = self.engine.advance(job.prefill, chunk)
        except Exception as error:
            job.prefill = None  # the engine gave its row back
            self._fail(job, error)
        else:
            if session is not None:
                self.counters.began(session)
                job.prefill, job.session = None, session
                self._tell(job)

    def step(self) -> Outcome | None:
        """One step of all running jobs. If it raises, they end with the error; None then, and if none was running."""
        running = [job for job in self.jobs if job.session is not None]
        try:
            outcome = self.engine.step() if running else None
        except Exception as error:
            log.exception("a step of %d rows failed", len(running))
            for job in running:
                self._fail(job, error)
            return None
        if outcome is not None:
            self.counters.stepped(outcome)
        for job in running:
            self._tell(job)
        return outcome

    def requests(self, rows: Collection[int]) -> list[str]:
        """What logs call the jobs of these rows."""
        found = [job for job in self.jobs if job.session is not None and job.session.row in rows]
        return [job.job.request or str(job.id) for job in found]

    def fail_all(self, error: Exception) -> None:
        for job in list(self.jobs):
            self._fail(job, error)

    def cancel_all(self) -> None:
        for job in list(self.jobs):
            job.cancelled = True
        self.end_due()

    def end(self, job: OpenJob, error: MedusaError | None = None, events: tuple[TokenEvent, ...] = ()) -> None:
        """The last update; then the row is given back, its KV kept for later prompts unless it is uncertain. Also ends
        jobs that never joined."""
        session = job.session
        result = session.result() if session else None if error else _nothing(job.job)
        job.tell(Update(events, result, error, job.num_cached))
        self.counters.ended(error.code if error else job.job.ended(result) if result else "cancelled")
        try:
            self._give_back(job)
        finally:
            job.prefill = job.session = None
            self.jobs = [other for other in self.jobs if other is not job]
            self._on_end(job)

    def _tell(self, job: OpenJob) -> None:
        """What is new of a job that has advanced."""
        session = job.session
        if session is None or self._end_if_due(job, self._clock()):
            return
        if session.error is not None:
            return self._fail(job, session.error)
        events = tuple(session.events[job.told :])
        job.told = len(session.events)
        self.counters.emitted(len(events))
        if session.running:
            job.tell(Update(events, None, None, job.num_cached))
        else:
            self.end(job, events=events)

    def _end_if_due(self, job: OpenJob, now: float) -> bool:
        if not job.cancelled and not job.is_late(now):
            return False
        if job.session is not None:
            job.session.cancel()
        self.end(job, None if job.cancelled else late(job))
        return True

    def _fail(self, job: OpenJob, error: Exception) -> None:
        if job.session is not None and job.session.error is None:
            job.session.fail(error)
        self.end(job, as_medusa_error(error))

    def _give_back(self, job: OpenJob) -> None:
        if job.prefill is not None:
            self.engine.abandon(job.prefill)
        if job.session is None:
            return
        if job.session.error is None:
            self._keep(job.job.key, job.session)
        self.engine.finish(job.session)

    def _keep(self, key: str, session: Session) -> None:
        """What cannot be kept (memory) is run again when it is needed."""
        runtime, row = self.engine.runtime, session.row
        try:
            self.cache.add(key, session.ids[: runtime.length(row)], lambda: runtime.save(row))
        except (MemoryError, RuntimeFailure):
            log.warning("no memory to keep %d positions for later prompts", runtime.length(row))


def as_medusa_error(error: Exception) -> MedusaError:
    """An error of another kind is a fault of this program; it stays the cause."""
    if isinstance(error, MedusaError):
        return error
    wrapped = RuntimeFailure(f"decoding failed: {type(error).__name__}: {error}", hint="the log has the traceback")
    wrapped.__cause__ = error
    return wrapped


def _num_left(job: OpenJob) -> int:
    return job.prefill.num_left if job.prefill else 0


def _nothing(job: Job) -> GenerationResult:
    """Of a job that was cancelled before its first token."""
    stats = GenerationStats(num_prompt_tokens=len(job.ids))
    rule = deciding_rule(job.params)
    return GenerationResult("", (), "cancelled", job.params.seed, rule.lossless, rule.name, stats)
