"""Show an answer while it is made, mark its accepted tokens, and end cleanly at Ctrl-C."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Protocol

from medusakit.cli.ui import Ui
from medusakit.engine.events import GenerationResult, TokenEvent


class EventStream(Protocol):
    """What `LLM.stream` and `Chat.send` return."""

    @property
    def result(self) -> GenerationResult: ...

    def __iter__(self) -> Iterator[TokenEvent]: ...

    def close(self) -> None: ...


class Interrupt:
    """Set by the first Ctrl-C."""

    asked = False


@contextmanager
def first_interrupt() -> Iterator[Interrupt]:
    """The first Ctrl-C asks for an orderly end; a second one raises KeyboardInterrupt."""
    interrupt = Interrupt()

    def ask(number: int, frame: FrameType | None) -> None:
        if interrupt.asked:
            raise KeyboardInterrupt
        interrupt.asked = True

    before = signal.signal(signal.SIGINT, ask)
    try:
        yield interrupt
    finally:
        signal.signal(signal.SIGINT, before)


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
    with first_interrupt() as interrupt:
        try:
            for event in stream:
                if live:
                    shown += _show(ui, event, highlight)
                if interrupt.asked:
                    break
        finally:
            stream.close()
    result = stream.result
    if not live:
        shown = sum(_show(ui, event, highlight) for event in result.events)
    if tail := result.text[shown:]:
        ui.piece(tail)
    ui.piece("\n")
    return result


def drain(stream: EventStream) -> GenerationResult:
    """Run a generation without showing it; Ctrl-C ends it as above."""
    with first_interrupt() as interrupt:
        try:
            for _ in stream:
                if interrupt.asked:
                    break
        finally:
            stream.close()
    return stream.result


def _show(ui: Ui, event: TokenEvent, highlight: str) -> int:
    if event.text:
        ui.piece(event.text, token_style(event, highlight))
    return len(event.text)
