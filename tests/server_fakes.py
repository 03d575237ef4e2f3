"""A server in a thread, around an engine that needs no files: for tests of what HTTP clients see."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import uvicorn

from fakes import EOS, ByteTokenizer, Script, ScriptedRuntime, SkilledDrafter
from medusakit.engine.controller import FixedController, PlainController
from medusakit.engine.engine import Engine
from medusakit.engine.jobs import CacheState, Job, JobState, Listener, Snapshot, Totals, Update
from medusakit.engine.plan import make_plan
from medusakit.engine.session import Session
from medusakit.errors import DrainingError, MedusaError, QueueFullError
from medusakit.runtimes.base import Runtime
from medusakit.runtimes.reference import random_reference
from medusakit.server.app import create_app
from medusakit.server.keys import Keyring
from medusakit.server.service import Card, Options, Service, Serving
from medusakit.text.control import ControlSplitter
from medusakit.tree.policy import StaticPolicy
from medusakit.tree.topology import Topology
from medusakit.verify.grammar import Grammars

TEMPLATE = (
    "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant: {% endif %}"
)


class ChatBytes(ByteTokenizer):
    """Bytes, with a chat template of plain text."""

    chat_template = tool_template = TEMPLATE
    names: dict[str, str] = {}
    control = ControlSplitter(())
    space_prefix = False


@dataclass
class _Open:
    id: int
    job: Job
    listener: Listener
    session: Session | None = None
    told: int = 0
    cancelled: bool = False


@dataclass
class FakeTicket:
    id: int
    open_job: _Open

    def cancel(self) -> None:
        self.open_job.cancelled = True


@dataclass
class FakeScheduler:
    """The scheduler's interface over a plain `Engine`; one step every `pause_s`. `failing`: raised in the next step.

    together  no step before so many jobs have been submitted
    hold_at   tokens of a job after which only a failure or a cancel moves it on; None: none
    """

    engine: Engine
    plain: Engine
    max_queue: int = 64
    pause_s: float = 0.0
    failing: MedusaError | None = None
    together: int = 1
    hold_at: int | None = None
    on_step: Callable[[Any], None] | None = None
    jobs: list[Job] = field(default_factory=list)
    open: list[_Open] = field(default_factory=list)
    speculation: bool = True
    draining: bool = False
    replaced: list[Any] = field(default_factory=list)
    steps: int = 0

    def __post_init__(self) -> None:
        self._lock = threading.Lock()
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    @property
    def capacity(self) -> int:
        return max(self.max_queue, 64)

    def submit(self, job: Job, listener: Listener) -> FakeTicket:
        self.engine.check(job.ids, job.params)
        if self.draining:
            raise DrainingError("the scheduler ends", hint="later")
        with self._lock:
            if len(self.open) >= self.max_queue:
                raise QueueFullError(f"{self.max_queue} requests wait", retry_after_s=7.2, hint="later")
            self.jobs.append(job)
            self.open.append(_Open(len(self.jobs), job, listener))
            return FakeTicket(len(self.jobs), self.open[-1])

    def snapshot(self) -> Snapshot:
        jobs = tuple(
            JobState(one.id, one.job.key, "running", 0.0, len(one.job.ids), 0, 0, 0, 1.0, True) for one in self.open
        )
        totals = Totals({"tree": self.steps, "plain": 0}, 5, 40, 20, 10, (6, 4), (10, 10), finished={"stop": 1})
        return Snapshot(
            len(self.open), 0, 8, self.draining, jobs, 5, 100, 8, CacheState(), totals, self.speculation, True, None
        )

    def set_speculation(self, on: bool) -> None:
        self.speculation = on

    def replace_drafting(self, parts: Any) -> None:
        if isinstance(parts, Exception):
            raise parts
        self.replaced.append(parts)

    def drain(self, timeout_s: float) -> bool:
        self.draining = True
        end = time.monotonic() + timeout_s
        while self.open and time.monotonic() < end:
            time.sleep(0.005)
        return not self.open

    def close(self) -> None:
        for one in list(self.open):
            one.cancelled = True
        while self.open:
            time.sleep(0.005)
        self._end.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._end.wait(self.pause_s or 0.0005):
            with self._lock:
                jobs = list(self.open) if len(self.jobs) >= self.together else []
            for one in jobs:
                self._advance(one)
            if jobs:
                self.steps += 1

    def _advance(self, one: _Open) -> None:
        engine = self.engine if one.job.speculation and self.speculation else self.plain
        if one.session is None and not one.cancelled:
            one.session = engine.start(one.job.ids, one.job.params)
        elif one.session is not None and (self.hold_at is None or one.told < self.hold_at):
            engine._active = [one.session]
            engine.step()
        if self.failing is not None:
            self._end_job(one, engine, Update((), None, self.failing, 0))
            self.failing = None
            return
        if one.cancelled and one.session is not None and one.session.running:
            one.session.cancel()
            self._end_job(one, engine, Update((), one.session.result(), None, 0))
            return
        if one.session is None:
            with self._lock:
                self.open.remove(one)
            return
        fresh = tuple(one.session.events[one.told :])
        one.told = len(one.session.events)
        if one.session.running:
            one.listener(Update(fresh, None, None, 3))
        else:
            self._end_job(one, engine, Update(fresh, one.session.result(), None, 3))

    def _end_job(self, one: _Open, engine: Engine, update: Update) -> None:
        if one.session is not None:
            engine.finish(one.session)
        with self._lock:
            self.open.remove(one)
        one.listener(update)


def scripted(text: str, *, max_context: int = 4096, ends: bool = False) -> Engine:
    """Says `text` for ever, drafting with some skill. ends: an answer ends with it."""
    script = Script((*text.encode(), *((EOS,) if ends else ())), 258)
    runtime = ScriptedRuntime(script, max_context=max_context, max_rows=64)
    plan = make_plan(SkilledDrafter(script, probability=0.7, seed=1), StaticPolicy(Topology.dense([2, 2])), 7)
    return Engine(runtime, ChatBytes(), FixedController(plan))


def random_engine(seed: int = 0) -> Engine:
    return Engine(random_reference(seed, 258, context_length=128, max_rows=16), ChatBytes(), PlainController())


def scheduler_of(engine: Engine, **options: Any) -> FakeScheduler:
    return FakeScheduler(engine, Engine(engine.runtime, engine.tokenizer, PlainController()), **options)


def card_of(runtime: Runtime) -> Card:
    return Card("toy", runtime.capabilities.max_context, runtime.spec.vocab_size, "f" * 64, "f32", "scripted")


def service_of(
    engine: Engine, options: Options | None = None, keys: tuple[str, ...] = (), forms: bool = False, **scheduling: Any
) -> tuple[Service, FakeScheduler]:
    """forms: answers may be asked for in a given form."""
    service = Service(options or Options(), Keyring(keys))
    scheduler = scheduler_of(engine, on_step=service.metrics.on_step, **scheduling)
    grammars = Grammars(engine.tokenizer, engine.runtime.spec.vocab_size) if forms else None
    service.opened(Serving(scheduler, engine.tokenizer, card_of(engine.runtime), grammars=grammars))
    return service, scheduler


@contextmanager
def listening(service: Service) -> Iterator[str]:
    """The server's address; ends with the block."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        server = uvicorn.Server(uvicorn.Config(create_app(service), log_level="error", lifespan="off"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [sock]}, daemon=True)
        thread.start()
        while not server.started:
            time.sleep(0.002)
        yield f"http://127.0.0.1:{sock.getsockname()[1]}"
        server.should_exit = True
        thread.join()
