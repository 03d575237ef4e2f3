"""From the inference thread to the event loop: updates of one request's jobs, in order."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass

from medusakit.engine.jobs import Job, Listener, Update
from medusakit.engine.open_job import Ticket
from medusakit.engine.scheduler import Scheduler


@dataclass(frozen=True, slots=True)
class Told:
    """index: which of the request's answers. at_s: when the inference thread said it."""

    index: int
    update: Update
    at_s: float


class Exchange:
    """One HTTP request at the scheduler: its jobs, and what they say. Belongs to the event loop that made it.

    name  the request's id, which clients may choose: several may have the same

    What waits here for a slow reader is at most the answers themselves; the reader's own deadline (server/sse.py) ends
    it.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        jobs: Sequence[Job],
        clock: Callable[[], float],
        tenant: str = "",
        name: str = "",
    ) -> None:
        """Submits all jobs, or none: raises what `Scheduler.submit` raises."""
        self._loop = asyncio.get_running_loop()
        self._queue: asyncio.Queue[Told] = asyncio.Queue()
        self._clock = clock
        self.tenant, self.name = tenant, name
        self.tickets: list[Ticket] = []
        try:
            for index, job in enumerate(jobs):
                self.tickets.append(scheduler.submit(job, self._listener(index)))
        except BaseException:
            self.cancel()
            raise

    def cancel(self) -> None:
        """End what is still open; nothing happens to jobs that have ended."""
        for ticket in self.tickets:
            ticket.cancel()

    async def told(self) -> AsyncIterator[Told]:
        """Every update, until all jobs have ended."""
        open_jobs = len(self.tickets)
        while open_jobs:
            told = await self._queue.get()
            open_jobs -= told.update.last
            yield told

    def _listener(self, index: int) -> Listener:
        def tell(update: Update) -> None:
            told = Told(index, update, self._clock())
            if not self._loop.is_closed():  # at the end of the process, nobody listens any more
                self._loop.call_soon_threadsafe(self._queue.put_nowait, told)

        return tell
