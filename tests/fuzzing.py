"""For tests with requests made up from the OpenAPI document: the server that gets them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from medusakit.engine.engine import Engine
from medusakit.engine.jobs import SchedulerSettings
from medusakit.engine.scheduler import Scheduler
from medusakit.server.keys import Keyring
from medusakit.server.service import Options, Service, Serving
from medusakit.settings import SamplingParams
from medusakit.verify.grammar import Grammars
from server_fakes import card_of, random_engine

NO_HEADS = "/admin/heads"  # this server has no heads to open: it says 503


@dataclass(frozen=True)
class HasEngine:
    engine: Engine


@contextmanager
def answering() -> Iterator[Service]:
    """A service with the real scheduler around a tiny random model; answers are short unless a request says."""
    engine = random_engine(2)
    service = Service(Options(defaults=SamplingParams(max_tokens=4), any_model=True), Keyring(()))
    scheduler = Scheduler(HasEngine(engine), SchedulerSettings(max_rows=4))
    scheduler.start()
    grammars = Grammars(engine.tokenizer, 258)
    service.opened(Serving(scheduler, engine.tokenizer, card_of(engine.runtime), grammars=grammars))
    try:
        yield service
    finally:
        scheduler.close()
