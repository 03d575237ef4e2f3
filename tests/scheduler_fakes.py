"""A scheduler for tests: the engine of `engine_fakes`, a clock that tests move, listeners that write down."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from engine_fakes import Prophet, answer, plain_engine, tree_engine
from medusakit.drafters.base import DraftState
from medusakit.engine.engine import Engine
from medusakit.engine.events import GenerationResult
from medusakit.engine.jobs import Job, SchedulerSettings, Update
from medusakit.engine.open_job import Ticket
from medusakit.engine.scheduler import Scheduler
from medusakit.settings import SamplingParams
from medusakit.tree.topology import Topology

CHAIN = Topology.chain(4)


@dataclass
class FakeLLM:
    engine: Engine


@dataclass
class Clock:
    now: float = 0.0

    def __call__(self) -> float:
        return self.now


@dataclass
class Knowing(Prophet):
    """A prophet that knows truths whatever row they come in."""

    known: list[list[int]] = field(default_factory=list)

    def truth(self, state: DraftState) -> Sequence[int]:
        ids = list(state.ids)
        return next((truth for truth in self.known if truth[: len(ids)] == ids), [])


@dataclass
class Listening:
    """One job's updates."""

    ticket: Ticket | None = None
    updates: list[Update] = field(default_factory=list)
    then: Callable[[Update], None] | None = None

    def __call__(self, update: Update) -> None:
        assert not self.ended, "an update after the last one"
        self.updates.append(update)
        if self.then is not None:
            self.then(update)

    @property
    def ended(self) -> bool:
        return bool(self.updates) and self.updates[-1].last

    @property
    def tokens(self) -> list[int]:
        return [event.token_id for update in self.updates for event in update.events]

    @property
    def result(self) -> GenerationResult:
        found = self.updates[-1].result
        assert found is not None
        return found


def scheduler(
    drafter: Prophet | None = None,
    *,
    eos: Sequence[int] = (),
    model: int = 0,
    clock: Clock | None = None,
    **settings: int,
) -> Scheduler:
    """Up to four rows; prefixes of any length are kept. Without a drafter it decodes plainly."""
    engine = tree_engine(CHAIN, drafter, model, eos=eos) if drafter else plain_engine(model, eos=eos)
    wanted = SchedulerSettings(**{"max_rows": 3, "prefill_chunk": 2, "cache_least_tokens": 1, **settings})
    return Scheduler(FakeLLM(engine), wanted, clock=clock or Clock())


def submit(scheduler: Scheduler, job: Job, then: Callable[[Update], None] | None = None) -> Listening:
    listening = Listening(then=then)
    listening.ticket = scheduler.submit(job, listening)
    return listening


def run(scheduler: Scheduler, limit: int = 10_000) -> None:
    """Turn until there is nothing to do."""
    for _ in range(limit):
        if not scheduler.tick():
            return
    raise AssertionError(f"still busy after {limit} turns")


def alone(job: Job, *, eos: Sequence[int] = (), model: int = 0) -> GenerationResult:
    """The library's plain answer."""
    return answer(plain_engine(model, eos=eos), job.ids, job.params)


def greedy(*ids: int, max_tokens: int = 8, **options: object) -> Job:
    return Job(ids, SamplingParams(max_tokens=max_tokens), **options)  # type: ignore[arg-type]
