"""A job from `submit` to its last update, and what holds on to it outside."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from medusakit.engine.engine import Prefill
from medusakit.engine.jobs import Job, JobState, Listener, Update
from medusakit.engine.session import Session
from medusakit.errors import DeadlineError

log = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class OpenJob:
    """A job from `submit` to its last update. Of these only `cancelled` is written by other threads.

    submitted  by the scheduler's clock; joined: when it got its row
    told       events that the listener has got
    deaf       the listener raised, so it is told nothing any more
    """

    id: int
    job: Job
    listener: Listener
    submitted: float
    cancelled: bool = False
    joined: float | None = None
    prefill: Prefill | None = None
    session: Session | None = None
    told: int = 0
    deaf: bool = False

    @property
    def num_cached(self) -> int:
        if self.session is not None:
            return self.session.stats.num_reused_tokens
        return self.prefill.num_reused if self.prefill else 0

    def is_late(self, now: float) -> bool:
        return self.job.deadline_s is not None and now - self.submitted > self.job.deadline_s

    def tell(self, update: Update) -> None:
        """A listener that raises ends its own job only."""
        if self.deaf:
            return
        try:
            self.listener(update)
        except Exception:
            log.exception("the listener of job %d raised; the job ends", self.id)
            self.cancelled = self.deaf = True

    def state(self, now: float) -> JobState:
        session, prefill = self.session, self.prefill
        return JobState(
            id=self.id,
            key=self.job.key,
            state="running" if session else "prefill" if prefill else "waiting",
            age_s=now - self.submitted,
            num_prompt_tokens=len(self.job.ids),
            num_prefilled=len(self.job.ids) if session else prefill.position if prefill else 0,
            num_cached_tokens=self.num_cached,
            num_tokens=session.stats.num_tokens if session else 0,
            tau=session.stats.tau if session else 1.0,
            speculation=self.job.speculation,
        )


class Ticket:
    """A job that was submitted."""

    def __init__(self, job: OpenJob, wake: Callable[[], None]) -> None:
        self._job, self._wake = job, wake

    @property
    def id(self) -> int:
        return self._job.id

    def cancel(self) -> None:
        """End the job within one step; from any thread, also after its end. Its last update has no events."""
        self._job.cancelled = True
        self._wake()


def late(job: OpenJob) -> DeadlineError:
    """What a job is told that has had its time."""
    where = "decoding" if job.session else "its prompt" if job.prefill else "waiting"
    return DeadlineError(
        f"the request had {job.job.deadline_s:g} s and was still {where}", hint="a later deadline, or fewer tokens"
    )
