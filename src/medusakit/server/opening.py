"""From a loaded model to one that answers: the scheduler around it, its card, and how other heads are opened."""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace

from medusakit.artifact.io import TENSORS, Artifact
from medusakit.engine.choices import Choices
from medusakit.engine.jobs import Job, SchedulerSettings, Update
from medusakit.engine.loading import Loaded, other_drafting
from medusakit.engine.scheduler import Scheduler
from medusakit.engine.speculation import Speculation
from medusakit.llm import LLM
from medusakit.server.service import Card, Drafting, Service, Serving
from medusakit.settings import SamplingParams

WARM_UP = SamplingParams(max_tokens=8, ignore_eos=True)


def open_serving(llm: LLM, name: str, settings: SchedulerSettings, service: Service) -> Serving:
    """Starts the inference thread and decodes a few tokens, so that the first request finds everything warm."""
    parts = llm.parts
    scheduler = Scheduler(llm, settings, on_idle=parts.cost_watch())
    scheduler.start()
    scheduler.set_speculation(service.options.speculation)
    _warm_up(scheduler, min(parts.runtime.spec.vocab_size, 16))
    scheduler.begin_counting(service.metrics.on_step)
    drafting = Drafting(parts.speculation, _drafter_name(parts.speculation), _hash_of(parts.artifact), llm.choices)
    card = card_of(parts, name, drafting)
    return Serving(scheduler, llm.tokenizer, card, drafting, Opener(parts), llm.grammars, parts.cost)


def card_of(parts: Loaded, name: str, drafting: Drafting) -> Card:
    found = parts.runtime.capabilities
    return Card(
        name,
        found.max_context,
        parts.runtime.spec.vocab_size,
        parts.source.fingerprint,
        found.weights,
        drafting.drafter,
        drafting.heads,
        found.backend,
        found.device,
    )


@dataclass(frozen=True, slots=True)
class Opener:
    """Opens heads for the model that is loaded (`service.OpenDrafting`)."""

    parts: Loaded

    def __call__(self, path: str, drafter: str | None) -> Drafting:
        wishes = self.parts.wishes if drafter is None else replace(self.parts.wishes, drafter=drafter)
        found, artifact = other_drafting(self.parts, path, wishes)
        return Drafting(found, _drafter_name(found), _hash_of(artifact), Choices(self.parts, artifact, wishes))


def _warm_up(scheduler: Scheduler, num_tokens: int) -> None:
    """Raises what went wrong: a model that cannot answer this will answer nothing."""
    done, last = threading.Event(), []

    def listen(update: Update) -> None:
        if update.last:
            last.append(update)
            done.set()

    scheduler.submit(Job(tuple(range(num_tokens)), WARM_UP, key="warm-up"), listen)
    done.wait()
    if last[0].error is not None:
        raise last[0].error


def _drafter_name(found: Speculation) -> str:
    return "none" if found.drafter is None else found.drafter.name


def _hash_of(artifact: Artifact | None) -> str:
    return "" if artifact is None else artifact.manifest.files[TENSORS]
