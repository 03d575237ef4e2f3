"""Show an answer while it is made, mark its accepted tokens, and end cleanly at Ctrl-C."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol

from medusakit.cli.ui import Ui
from medusakit.engine.events import GenerationResult, TokenEvent
from medusakit.train.interrupt import deferred_interrupt


class EventStream(Protocol):
    """What `LLM.stream` and `Chat.send` return."""

    @property
    def result(self) -> GenerationResult: ...

    def __iter__(self) -> Iterator[TokenEvent]: ...

    def close(self) -> None: ...


def token_style(event: TokenEvent, highlight: str) -> str | None:
    """Theme name for one token. accepted: drafted tokens that were kept; step: every other verify pass."""
    if highlight == "accepted" and event.from_draft:
        return "accepted"
    if highlight == "step":
        return "step.odd" if event.step % 2 else "step.even"
    return None


def show_answer(ui: Ui, stream: EventStream, *, highlight: str = "none", live: bool = True) -> GenerationResult:
    """Print the events of `stream` as they come (live) or at the end. Ctrl-C keeps what is there: "cancelled"."""
    shown = 0

    def show(event: TokenEvent) -> None:
        nonlocal shown
        shown += len(event.text)
        if event.text:
            ui.piece(event.text, token_style(event, highlight))

    result = drain(stream, show if live else None)
    if not live:
        for event in result.events:
            show(event)
    ui.piece(result.text[shown:] + "\n")
    return result


def drain(stream: EventStream, on_event: Callable[[TokenEvent], None] | None = None) -> GenerationResult:
    """Run a generation to its end. The first Ctrl-C ends it early and keeps what is there; a second stops at once."""
    with deferred_interrupt(raised_at_end=False) as pressed:
        try:
            for event in stream:
                if on_event:
                    on_event(event)
                if pressed():
                    break
        finally:
            stream.close()
    return stream.result
