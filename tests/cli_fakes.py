"""A scripted model in place of a real one, for tests of the command line."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from medusakit.engine.events import FinishReason, GenerationResult, GenerationStats, TokenEvent
from medusakit.runtimes.base import Capabilities
from medusakit.settings import SamplingParams

GREEDY = SamplingParams()


def scripted_events(text: str) -> list[TokenEvent]:
    """One event a word: the first from prefill, then steps that accept two drafted words and add a bonus."""
    pieces = [word if place == 0 else f" {word}" for place, word in enumerate(text.split())]
    events = []
    for place, piece in enumerate(pieces):
        depth = 0 if place == 0 else place % 3
        step = (place + 2) // 3
        events.append(TokenEvent(100 + place, piece, depth > 0, depth, depth or -1, step, -0.5))
    return events


class FakeStream:
    """Events one by one. raise_after: a function called once that many events are out (e.g. to press Ctrl-C)."""

    def __init__(
        self, events: Sequence[TokenEvent], speculation: bool, acceptance: str, press: Callable[[], None] | None
    ):
        self._events = list(events)
        self._given: list[TokenEvent] = []
        self._speculation = speculation
        self._acceptance = acceptance
        self._press = press
        self.closed = False

    def __iter__(self) -> Iterator[TokenEvent]:
        for event in self._events:
            if self.closed:
                return
            self._given.append(event)
            yield event
            if self._press is not None and len(self._given) == 2:
                self._press()

    def __enter__(self) -> FakeStream:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        self.closed = True

    @property
    def result(self) -> GenerationResult:
        given = self._given
        whole: FinishReason = "stop" if len(given) == len(self._events) else "cancelled"
        stats = GenerationStats(num_prompt_tokens=5, num_tokens=len(given), num_steps=max(1, len(given) // 3))
        stats.num_nodes = 8 * stats.num_steps
        stats.prefill_s, stats.forward_s, stats.draft_s = 0.1, 0.4, 0.1
        if self._speculation:
            stats.offered_by_depth, stats.accepted_by_depth = [10, 10], [8, 4]
        ids = tuple(event.token_id for event in given)
        text = "".join(event.text for event in given)
        return GenerationResult(text, ids, whole, 7, self._acceptance == "exact", self._acceptance, stats, tuple(given))


@dataclass
class FakeChat:
    llm: FakeLLM
    params: SamplingParams
    turns: list[str] = field(default_factory=list)
    cleared: int = 0
    closed: bool = False

    def send(self, text: str, *, speculation: bool = True) -> FakeStream:
        self.turns.append(text)
        return self.llm.stream(text, self.params, speculation=speculation)

    def clear(self) -> None:
        self.cleared += 1

    def close(self) -> None:
        self.closed = True


@dataclass
class FakeLLM:
    """Answers every prompt with the same words and remembers what it was asked."""

    answer: str = "one two three four five six seven"
    press: Callable[[], None] | None = None
    calls: list[dict[str, Any]] = field(default_factory=list)
    chats: list[FakeChat] = field(default_factory=list)
    cost: Any = None
    heads: bool = False
    headless: str | None = None

    @property
    def parts(self) -> Any:
        drafter = SimpleNamespace(family="hydra")
        manifest = SimpleNamespace(drafter=drafter, provenance=SimpleNamespace(created="today"))
        return SimpleNamespace(
            artifact=SimpleNamespace(manifest=manifest) if self.heads else None,
            speculation=SimpleNamespace(
                drafter=SimpleNamespace(name="hydra" if self.heads else self.headless)
                if self.heads or self.headless
                else None,
                topology=SimpleNamespace(num_nodes=8 if self.heads else 1),
                max_nodes=None,
                budget=None,
            ),
            cost=self.cost,
            runtime=self.runtime,
            source=SimpleNamespace(fingerprint="f" * 64),
            withheld=False,
        )

    @property
    def runtime(self) -> Any:
        spec = SimpleNamespace(name="fake", family="llama", num_layers=1, hidden_size=8, vocab_size=512)
        return SimpleNamespace(
            spec=spec,
            capabilities=Capabilities("f32", "bitwise-ties", max_rows=1, max_context=64),
        )

    def stream(
        self, prompt: Any, params: SamplingParams = GREEDY, *, speculation: bool = True, raw: bool = False
    ) -> FakeStream:
        self.calls.append({"prompt": prompt, "params": params, "speculation": speculation, "raw": raw})
        events = scripted_events(self.answer)[: params.max_tokens]
        return FakeStream(events, speculation, params.acceptance, self.press)

    def encode(self, prompt: Any, *, raw: bool = False) -> list[int]:
        text = prompt if isinstance(prompt, str) else prompt[-1]["content"]
        return [ord(letter) for letter in text]

    def stream_ids(
        self, ids: Sequence[int], params: SamplingParams = GREEDY, *, speculation: bool = True
    ) -> FakeStream:
        return self.stream("".join(map(chr, ids)), params, speculation=speculation)

    def chat(self, system: str | None = None, params: SamplingParams = GREEDY) -> FakeChat:
        self.chats.append(FakeChat(self, params))
        return self.chats[-1]


@dataclass(frozen=True)
class Outcome:
    code: int
    out: str
    err: str


Invoke = Callable[..., Outcome]
