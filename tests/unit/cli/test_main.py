"""Errors, exit codes, help: what holds for every command."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import click
import pytest

from cli_fakes import FakeLLM, Invoke
from medusakit.cli.group import LazyGroup
from medusakit.cli.root import COMMANDS, cli
from medusakit.errors import (
    ArtifactMismatchError,
    ContextLengthError,
    MedusaError,
    ModelError,
    UsageError,
)

PYPROJECT = Path(__file__).parents[3] / "pyproject.toml"


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (UsageError("bad flag", hint="medusa --help"), 2),
        (ModelError("no such model", hint="medusa models list"), 3),
        (ArtifactMismatchError("heads do not fit", hint="medusa run --no-speculation"), 3),
        (ContextLengthError("too long", hint="a shorter prompt"), 4),
        (MemoryError(), 4),
        (OSError(28, "No space left on device", "/cache/x"), 4),
        (ZeroDivisionError("a bug"), 4),
        (KeyboardInterrupt(), 130),
    ],
)
def test_exit_code_and_no_traceback(
    invoke: Invoke, monkeypatch: pytest.MonkeyPatch, error: BaseException, code: int
) -> None:
    def fail(self: object) -> None:
        raise error

    monkeypatch.setattr("medusakit.cli.app.App.load", fail)
    outcome = invoke("run", "x")
    assert outcome.code == code
    assert "Traceback" not in outcome.err
    if isinstance(error, MedusaError):
        assert outcome.err == f"error: {error.message}\n  try: {error.hint}\n"
    elif code == 4:
        assert outcome.err.startswith("error: ") and "\n  try: " in outcome.err


@pytest.mark.parametrize("words", [("--debug", "run", "x"), ("run", "x", "--debug")])
def test_debug_shows_the_traceback(invoke: Invoke, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]) -> None:
    def fail(self: object) -> None:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr("medusakit.cli.app.App.load", fail)
    outcome = invoke(*words)
    assert outcome.code == 4
    assert "Traceback" in outcome.err and "ZeroDivisionError" in outcome.err


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (("run", "x", "--no-such-flag"), "try: medusa run --help"),
        (("run", "x", "--temperature", "hot"), "--temperature: 'hot' is not a number"),
        (("run", "x", "--weights", "fp16"), "fp16"),
        (("config", "shw"), "try: medusa config --help"),
        (("run", "x", "--config", "/no/such/file.toml"), "try: medusa config init --config /no/such/file.toml"),
        (("run", "x", "--stop", ""), "--stop: a text is empty; expected one character or more\n  try: --stop TEXT"),
    ],
)
def test_usage_errors_say_what_would_work(invoke: Invoke, llm: FakeLLM, words: tuple[str, ...], part: str) -> None:
    outcome = invoke(*words)
    assert outcome.code == 2
    assert part in outcome.err
    assert outcome.err.startswith("error: ")


def test_an_error_names_the_variable_or_the_file_that_is_at_fault(
    invoke: Invoke, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """--raw has no place for a system message; this one comes from elsewhere."""
    monkeypatch.setenv("MEDUSA_SYSTEM", "be brief")
    assert "leave out MEDUSA_SYSTEM, or" in invoke("run", "x", "--raw").err
    monkeypatch.delenv("MEDUSA_SYSTEM")
    file = tmp_path / "c.toml"
    file.write_text('system = "be brief"\n')
    assert f"leave out system in {file}, or" in invoke("run", "x", "--raw", "--config", str(file)).err
    assert "leave out --system, or" in invoke("run", "x", "--raw", "--system", "be brief").err
    monkeypatch.setenv("MEDUSA_TOP_P", "7")
    assert "try: MEDUSA_TOP_P=" in invoke("run", "x").err


def test_help_table_agrees_with_the_commands() -> None:
    """The table is written by hand so that help imports nothing: every entry must load and be documented."""
    assert isinstance(cli, LazyGroup)
    context = click.Context(cli)
    for name in COMMANDS:
        command = cli.get_command(context, name)
        assert command is not None and command.name == name
        assert command.help


def test_every_command_has_help(invoke: Invoke) -> None:
    for name in COMMANDS:
        outcome = invoke(name, "--help")
        assert outcome.code == 0
        assert outcome.out.startswith(f"Usage: medusa {name}")


def test_lists_of_commands_are_not_cut(invoke: Invoke, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    for name in COMMANDS:
        assert "..." not in invoke(name, "--help").out.partition("Commands:")[2]


@pytest.mark.parametrize(("words", "default"), [(["run"], 512), (["compare"], 128), (["bench", "offline"], 256)])
def test_help_names_the_default_that_the_command_takes(invoke: Invoke, words: list[str], default: int) -> None:
    assert f"Most tokens of an answer. [{default}]" in invoke(*words, "--help").out


def test_version(invoke: Invoke) -> None:
    assert invoke("--version").out.startswith("medusa, version ")


def test_the_package_runs_as_a_module() -> None:
    done = subprocess.run([sys.executable, "-m", "medusakit", "--version"], capture_output=True, text=True, check=False)
    assert done.returncode == 0 and done.stdout.startswith("medusa, version ")


def test_a_closed_pipe_ends_quietly() -> None:
    """`medusa config show | head -1`, with a reader that leaves at once."""
    script = "import sys; from medusakit.cli.main import main; sys.exit(main(['config', 'show']))"
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run([sys.executable, "-c", script], stdout=writer, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writer)
    assert (done.returncode, done.stderr) == (0, "")


def test_sigterm_unwinds() -> None:
    """A command that waits in a `with` block gets to its end."""
    code = """
import click, sys, time
from medusakit.cli.main import main
@click.command()
def wait():
    try:
        print("ready", flush=True)
        time.sleep(30)
    finally:
        print("cleaned up", flush=True)
sys.exit(main([], wait))
"""
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
        process.terminate()
        assert process.stdout.read() == "cleaned up\n" and process.wait(10) == 143


@pytest.mark.parametrize("module", ["click", "medusakit.cli.root", "tomllib"])
@pytest.mark.parametrize("entry", tomllib.loads(PYPROJECT.read_text())["project"]["scripts"].values())
def test_ctrl_c_while_modules_are_imported_ends_quietly(module: str, entry: str) -> None:
    """Each entry point of the package, interrupted by the first import of a module."""
    code = f"""
import builtins, signal, sys
from importlib.metadata import EntryPoint
real = builtins.__import__
def watched(name, *rest):
    if name == {module!r} and name not in sys.modules:
        signal.raise_signal(signal.SIGINT)
    return real(name, *rest)
builtins.__import__ = watched
sys.argv = ["medusa", "config", "show"]
sys.exit(EntryPoint("medusa", {entry!r}, "console_scripts").load()())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr.strip()) == (130, "", "")


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&-", "<&- >&- 2>&-"])
@pytest.mark.parametrize("words", [["config", "show"], ["run"]])
def test_streams_that_a_shell_closed(closed: str, words: list[str]) -> None:
    script = f"import sys; from medusakit.cli.main import main; sys.exit(main({words!r}))"
    done = subprocess.run(
        f"{sys.executable} -c {shlex.quote(script)} {closed}", shell=True, capture_output=True, text=True
    )
    assert done.returncode == (2 if words == ["run"] else 0)
    assert "internal" not in done.stderr and "Traceback" not in done.stderr
