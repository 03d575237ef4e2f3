"""What one mode of the bench makes of one prompt, in one shape for every mode."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from medusakit.drafters.base import Drafter
from medusakit.engine.controller import Controller, PlainController
from medusakit.engine.drafting import DrafterFailure
from medusakit.engine.engine import Engine
from medusakit.engine.events import GenerationResult
from medusakit.engine.plan import Plan
from medusakit.engine.session import Session
from medusakit.engine.step import Outcome
from medusakit.engine.stream import Stream
from medusakit.llm import LLM
from medusakit.settings import SamplingParams


@dataclass(frozen=True, slots=True)
class Answer:
    """Token ids (end of sequence included) and the counts and seconds of decoding; prefill and its token stand apart.

    steps     verify passes; nodes: rows of all passes; offered, accepted: drafted depths, by depth
    passes    (rows, positions of the text) of every pass
    """

    token_ids: tuple[int, ...]
    text: str
    steps: int
    nodes: int
    prefill_s: float
    forward_s: float
    draft_s: float
    other_s: float
    offered: tuple[int, ...] = ()
    accepted: tuple[int, ...] = ()
    passes: tuple[tuple[int, int], ...] = ()

    @property
    def decode_s(self) -> float:
        return self.forward_s + self.draft_s + self.other_s

    @property
    def tokens(self) -> int:
        """Tokens after the first."""
        return max(0, len(self.token_ids) - 1)

    @classmethod
    def of(cls, result: GenerationResult, passes: Sequence[tuple[int, int]] = ()) -> Answer:
        stats = result.stats
        return cls(
            result.token_ids,
            result.text,
            stats.num_steps,
            stats.num_nodes,
            stats.prefill_s,
            stats.forward_s,
            stats.draft_s,
            stats.other_s,
            tuple(stats.offered_by_depth),
            tuple(stats.accepted_by_depth),
            tuple(passes),
        )


class Mode(Protocol):
    """A way of answering: plain, medusa, hf, or one of several drafters or trees that are compared."""

    @property
    def name(self) -> str: ...

    def answer(self, ids: Sequence[int], params: SamplingParams) -> Answer: ...


@dataclass(frozen=True, slots=True)
class EngineMode:
    """Our engine with speculation on (`medusa`) or off (`plain`): the same kernels, the same process."""

    llm: LLM
    speculation: bool

    @property
    def name(self) -> str:
        return "medusa" if self.speculation else "plain"

    def answer(self, ids: Sequence[int], params: SamplingParams) -> Answer:
        return _answer(self.llm, self.llm.controller if self.speculation else PlainController(), ids, params)


@dataclass(frozen=True, slots=True)
class ControllerMode:
    """Our engine under a controller of its own: another drafter or another tree through the same kernels."""

    name: str
    llm: LLM
    controller: Controller

    def answer(self, ids: Sequence[int], params: SamplingParams) -> Answer:
        return _answer(self.llm, self.controller, ids, params)


class _Recorder:
    """Another controller, whose passes are written down."""

    def __init__(self, inner: Controller) -> None:
        self._inner = inner
        self.passes: list[tuple[int, int]] = []

    @property
    def drafter(self) -> Drafter:
        return self._inner.drafter

    def plan(self, sessions: Sequence[Session]) -> Plan:
        return self._inner.plan(sessions)

    def plans(self, sessions: Sequence[Session]) -> list[Plan]:
        return self._inner.plans(sessions)

    def failed(self, failure: DrafterFailure) -> None:
        self._inner.failed(failure)

    def learn(self, outcome: Outcome) -> None:
        self.passes.append((outcome.nodes, outcome.context))
        self._inner.learn(outcome)

    def forget(self, row: int) -> None:
        self._inner.forget(row)

    def reset(self) -> None:
        self._inner.reset()


def _answer(llm: LLM, controller: Controller, ids: Sequence[int], params: SamplingParams) -> Answer:
    recorder = _Recorder(controller)
    engine = Engine(llm.runtime, llm.tokenizer, recorder)
    with Stream(engine, engine.start(ids, params)) as stream:
        for _ in stream:
            pass
        return Answer.of(stream.result, recorder.passes)


class TransformersMode:
    """transformers' greedy generate. Raises MissingExtraError without torch; UsageError for sampled requests."""

    name = "hf"

    def __init__(self, llm: LLM, threads: int | None) -> None:
        from medusakit.runtimes.torch.baseline import TransformersBaseline

        self._llm = llm
        self._baseline = TransformersBaseline(llm.parts.resolved, threads=threads)

    def answer(self, ids: Sequence[int], params: SamplingParams) -> Answer:
        eos = () if params.ignore_eos else sorted(self._llm.tokenizer.eos_ids)
        made = self._baseline.generate(ids, max_tokens=params.max_tokens, eos_ids=eos)
        steps = max(0, len(made.token_ids) - 1)
        text = self._llm.tokenizer.decode(list(made.token_ids))
        return Answer(made.token_ids, text, steps, steps, made.prefill_s, made.decode_s, 0.0, 0.0)
