"""A way to call the command line as a person does, with a scripted model."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from cli_fakes import FakeLLM, Invoke, Outcome
from medusakit.cli.app import App
from medusakit.cli.main import main


@pytest.fixture
def llm(monkeypatch: pytest.MonkeyPatch) -> FakeLLM:
    fake = FakeLLM()
    monkeypatch.setattr(App, "load", lambda self, **_: fake)
    return fake


@pytest.fixture
def invoke(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Invoke:
    """Call `medusa` with these words (and piped text); no settings of the person who runs the tests get in."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "settings"))
    monkeypatch.setenv("COLUMNS", "120")
    for name in ("MEDUSA_CONFIG", "MEDUSA_DEBUG", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)

    def call(*words: str, piped: str = "") -> Outcome:
        monkeypatch.setattr("sys.stdin", io.StringIO(piped))
        capsys.readouterr()
        code = main(list(words))
        captured = capsys.readouterr()
        return Outcome(code, captured.out, captured.err)

    return call
