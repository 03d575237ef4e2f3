"""Bars of long stages."""

from __future__ import annotations

import io

import pytest

from medusakit.cli.stages import StageBars, amount, duration, pace
from medusakit.cli.ui import Ui
from medusakit.train.progress import Progress


def test_texts_leave_out_what_is_unknown() -> None:
    assert amount(Progress("heads", 1200, 0, unit="steps")) == "1,200 steps"
    assert amount(Progress("heads", 1200, 40_000)) == "1,200/40,000 tokens"
    assert amount(Progress("seeds", 0, 0, unit="")) == ""
    assert pace(Progress("heads", 0, 10)) == ""
    assert pace(Progress("heads", 0, 10, rate=411.6, remaining_s=68.0)) == "412/s · 1m08s left"
    assert pace(Progress("heads", 0, 10, rate=0.52)) == "0.5/s"


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.0, "0s"), (59.4, "59s"), (60, "1m00s"), (3599.6, "1h00m"), (7300, "2h01m")]
)
def test_durations(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_a_pipe_gets_a_line_now_and_then_and_the_end(capsys: pytest.CaptureFixture[str]) -> None:
    times = iter(range(0, 1000, 10))
    with StageBars(Ui(), clock=lambda: float(next(times))) as bars:
        for done in range(6):
            bars(Progress("distill", done, 6, rate=2.0))
        bars(Progress("distill", 6, 6, note="38 % of answers were cut: fine under 50 %", finished=True))
    captured = capsys.readouterr()
    assert 1 <= len(captured.err.splitlines()) <= 3
    assert captured.err.startswith("distill    0/6 tokens · 2.0/s")
    assert captured.out == "distill     6/6 tokens  38 % of answers were cut: fine under 50 %\n"


def test_quiet_leaves_only_the_end(capsys: pytest.CaptureFixture[str]) -> None:
    with StageBars(Ui(quiet=True)) as bars:
        bars(Progress("distill", 1, 6))
        bars(Progress("distill", 6, 6, note="good", finished=True))
    captured = capsys.readouterr()
    assert (captured.err, captured.out) == ("", "distill     6/6 tokens  good\n")


def test_a_terminal_gets_a_bar_that_ends(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    screen = Terminal()
    monkeypatch.setattr("sys.stderr", screen)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    with StageBars(Ui()) as bars:
        bars(Progress("heads", 3, 6, unit="steps", rate=2.0, remaining_s=2.0))
        bars(Progress("tree", 1, 2, unit="nodes"))
    assert "3/6 steps" in screen.getvalue()
    assert "1/2 nodes" in screen.getvalue()
