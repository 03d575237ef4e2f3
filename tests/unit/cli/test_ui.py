"""The console: colours, control characters, quiet."""

from __future__ import annotations

import errno
import io
import sys

import pytest

from medusakit.cli.answer import token_style
from medusakit.cli.ui import Ui
from medusakit.engine.events import TokenEvent


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def terminal(monkeypatch: pytest.MonkeyPatch, *, no_color: bool = False) -> Terminal:
    """Put a terminal in place of stdout (in the test itself: pytest sets its own stdout after fixtures ran)."""
    screen = Terminal()
    monkeypatch.setattr("sys.stdout", screen)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    if no_color:
        monkeypatch.setenv("NO_COLOR", "1")
    return screen


def test_accepted_tokens_are_underlined_and_coloured(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = terminal(monkeypatch)
    Ui().piece("yes", "accepted")
    assert screen.getvalue() == "\x1b[4;32myes\x1b[0m"


def test_no_color_keeps_the_underline(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = terminal(monkeypatch, no_color=True)
    Ui().piece("yes", "accepted")
    assert screen.getvalue() == "\x1b[4myes\x1b[0m"


def test_a_terminal_gets_no_control_characters_from_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = terminal(monkeypatch)
    Ui().piece("a\x1b[2Jb\tc\nd\x07\x9b")
    assert screen.getvalue() == "a\ufffd[2Jb\tc\nd\ufffd\ufffd"


def test_a_pipe_gets_the_text_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    Ui().piece("a\x1b[1m [bold]b[/bold]", "accepted")
    assert capsys.readouterr().out == "a\x1b[1m [bold]b[/bold]"


def test_markup_in_an_answer_is_text(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = terminal(monkeypatch)
    Ui().piece("list[int] [red]x[/red]")
    assert screen.getvalue() == "list[int] [red]x[/red]"


def event(step: int, from_draft: bool) -> TokenEvent:
    return TokenEvent(1, "x", from_draft, int(from_draft), 1, step, 0.0)


def test_token_styles() -> None:
    assert token_style(event(1, True), "accepted") == "accepted"
    assert token_style(event(1, False), "accepted") is None
    assert token_style(event(1, True), "none") is None
    assert [token_style(event(step, True), "step") for step in (1, 2, 3)] == ["step.odd", "step.even", "step.odd"]


def test_a_full_disk_under_the_log_costs_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    class Full(io.StringIO):
        def write(self, text: str) -> int:
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(sys, "stderr", Full())
    ui = Ui()
    ui.note("a note")
    ui.warn("a warning")
    ui.error("an error", "a hint")
