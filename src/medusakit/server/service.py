"""What the routes work with: the model being served, its limits, its tenants, and the requests in flight."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal, Protocol

from anyio import CapacityLimiter

from medusakit import __version__
from medusakit.engine.choices import Choices
from medusakit.engine.jobs import Snapshot
from medusakit.engine.scheduler import Scheduler
from medusakit.engine.speculation import Speculation
from medusakit.server.errors import unavailable
from medusakit.server.keys import Keyring
from medusakit.server.logs import log
from medusakit.server.metrics import Metrics
from medusakit.server.relay import Exchange
from medusakit.server.tracing import Tracing
from medusakit.server.window import Window
from medusakit.settings import SamplingParams
from medusakit.text.tokenizer import Tokenizer
from medusakit.tree.cost import StepCost
from medusakit.verify.grammar import Grammars

FORM_THREADS = 2  # compile forms of answers

Status = Literal["loading", "ready", "draining", "failed"]


@dataclass(frozen=True, slots=True)
class Card:
    """The model as clients see it. heads: short hash of what drafts, empty without heads."""

    name: str
    context: int
    vocab_size: int
    fingerprint: str
    weights: str
    drafter: str
    heads: str = ""
    backend: str = "onnx"
    device: str = "cpu"

    @property
    def system_fingerprint(self) -> str:
        return f"fp_{(self.heads or self.fingerprint)[:10]}_{self.backend}_{self.weights}"


@dataclass(frozen=True, slots=True)
class Drafting:
    """Heads that may be put in place: what the scheduler takes, what the card then says, and what single requests may
    choose instead."""

    parts: Speculation
    drafter: str
    heads: str
    choices: Choices | None = None


class OpenDrafting(Protocol):
    def __call__(self, path: str, drafter: str | None) -> Drafting:
        """Open heads for the model that is served. Raises ArtifactError (fingerprint, width, damage), UsageError."""
        ...


@dataclass(frozen=True, slots=True)
class Serving:
    """A model that answers. drafting: what drafts now; open_drafting: how other heads are opened.
    grammars: for answers in a given form. cost: T(n, context) as measured at load; None: decoding is plain."""

    scheduler: Scheduler
    tokenizer: Tokenizer
    card: Card
    drafting: Drafting | None = None
    open_drafting: OpenDrafting | None = None
    grammars: Grammars | None = None
    cost: StepCost | None = None


@dataclass(frozen=True, slots=True)
class Options:
    """Limits and defaults. names: further names the model answers to. deadline_s: of a request; None: none.
    cors: origins of other sites whose pages may ask; `localhost` stands for every port of this machine.
    tool_format: how the model writes calls (text/call_formats.py); None: as its chat template tells."""

    defaults: SamplingParams = field(default_factory=SamplingParams)
    names: tuple[str, ...] = ()
    any_model: bool = False
    max_body_bytes: int = 4 << 20
    deadline_s: float | None = None
    drain_s: float = 30.0
    cors: tuple[str, ...] = ()
    speculation: bool = True
    metrics_prefix: str = "medusa_"
    tool_format: str | None = None


class Service:
    """Lives as long as the process. The event loop and the loading thread use it; status changes are atomic."""

    def __init__(
        self,
        options: Options,
        keys: Keyring,
        *,
        clock: Callable[[], float] = time.perf_counter,
        tracing: Tracing | None = None,
    ) -> None:
        self.options, self.keys, self.clock, self.tracing = options, keys, clock, tracing
        self.started_at = int(time.time())
        self.metrics = Metrics(options.metrics_prefix, Window(clock), self._totals, {"version": __version__})
        self.exchanges: set[Exchange] = set()
        self.forms = CapacityLimiter(FORM_THREADS)
        self._serving: Serving | None = None
        self._before: Drafting | None = None
        self._status: Status = "loading"
        self._swap = threading.Lock()
        self._cut = False

    @property
    def status(self) -> Status:
        return self._status

    def opened(self, serving: Serving) -> None:
        """The model answers from now on."""
        card = serving.card
        self._serving = serving
        self.metrics.describe(backend=f"{card.backend}-{card.weights}", model=card.name, artifact=card.heads or "none")
        if self._status == "loading":
            self._status = "ready"

    def failed(self) -> None:
        self._status = "failed"

    def drain(self) -> bool:
        """Take no new requests, wait for the open ones up to the limit, then end them. Blocks; True: all were done."""
        self._status = "draining"
        log("stopping", open_requests=len(self.exchanges), drain_s=self.options.drain_s)
        done = self._serving is None or self._serving.scheduler.drain(self.options.drain_s)
        if self._serving is not None:
            self._serving.scheduler.close()
        done = done and not self._cut
        log("stopped", all_done=done)
        return done

    def cut(self) -> None:
        """End the open requests and the inference thread, within a step, which `drain` may wait for."""
        self._cut = True
        if self._serving is not None:
            self._serving.scheduler.close()

    def serving(self) -> Serving:
        """Raises ApiError 503 while there is nothing to answer with."""
        if self._status == "draining":
            raise unavailable("draining", "the server is stopping and takes no new requests", 30)
        if self._serving is None or self._status != "ready":
            raise unavailable("loading", "the model is being loaded", 5)
        return self._serving

    def names(self, serving: Serving) -> tuple[str, ...]:
        """What the model answers to, the first its own."""
        return tuple(dict.fromkeys((*self.options.names, serving.card.name)))

    def wall_clock(self) -> int:
        """Unix time in seconds, as OpenAI's `created`."""
        return int(time.time())

    def replace_drafting(self, path: str, drafter: str | None) -> Card:
        """Other heads from the next step on. Whatever fails, the old ones stay. Blocks while they are opened."""
        with self._swap:
            serving = self.serving()
            if serving.open_drafting is None:
                raise unavailable("unsupported", "this server cannot open heads", 60)
            return self._put(serving, serving.open_drafting(path, drafter))

    def roll_back(self) -> Card | None:
        """What drafted before the last replacement; None if there was none."""
        with self._swap:
            return None if self._before is None else self._put(self.serving(), self._before)

    def state(self) -> dict[str, Any]:
        """For people and pages: no prompts, no answers, no keys."""
        snapshot, minute = self._totals(), asdict(self.metrics.window.minute())
        jobs = {ticket.id: exchange.name for exchange in list(self.exchanges) for ticket in exchange.tickets}
        found = {} if snapshot is None else asdict(snapshot)
        for job in found.get("jobs", ()):
            job["request_id"] = jobs.get(job["id"])
        model = None if self._serving is None else asdict(self._serving.card)
        cost = self._serving.cost if self._serving else None
        up_s = int(time.time()) - self.started_at
        return {"status": self._status, "version": __version__, "uptime_s": up_s, "model": model} | {
            "last_minute": minute,
            "scheduler": found or None,
            "step_ms": None if cost is None else cost.milliseconds(),
            "tree": self.metrics.heat.told(),
        }

    def _put(self, serving: Serving, drafting: Drafting) -> Card:
        serving.scheduler.replace_drafting(drafting.parts)
        card = replace(serving.card, drafter=drafting.drafter, heads=drafting.heads)
        before = serving.drafting
        if before is None or (drafting.drafter, drafting.heads) != (before.drafter, before.heads):
            self._before = before  # the same again leaves what one may want back
        self.metrics.heat.clear()
        self.opened(replace(serving, card=card, drafting=drafting))
        return card

    def _totals(self) -> Snapshot | None:
        return None if self._serving is None else self._serving.scheduler.snapshot()
