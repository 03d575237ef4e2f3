"""What a person is told: every error but those about misuse inside the program says what would work."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from medusakit import errors
from medusakit.cli.root import cli

PACKAGE = Path(errors.__file__).parent
KINDS = {name for name, kind in vars(errors).items() if isinstance(kind, type) and issubclass(kind, errors.MedusaError)}
# `runtimes`: mostly contracts between modules, which only a programmer breaks; two stages say what they expected
EXEMPT = ("runtimes/", "train/answers.py", "train/seeds.py")
SOURCES = [path for path in sorted(PACKAGE.rglob("*.py")) if not str(path.relative_to(PACKAGE)).startswith(EXEMPT)]


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_errors_say_what_would_work(path: Path) -> None:
    calls = (node for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(node, ast.Call))
    made = [call for call in calls if isinstance(call.func, ast.Name) and call.func.id in KINDS]
    assert not [call.lineno for call in made if not any(word.arg == "hint" for word in call.keywords)]


def commands(command: click.Command, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Every command under its words."""
    yield path, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None
            yield from commands(below, (*path, name))


COMMANDS = dict(commands(cli))
FLAGS = {flag for command in COMMANDS.values() for given in command.params for flag in (*given.opts, "--help")}
FLAGS |= {flag for command in COMMANDS.values() for given in command.params for flag in given.secondary_opts}
OTHER_PROGRAMS = re.compile(r"(pip|hf|llama-gguf-split) \S.*")


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_hints_name_flags_and_commands_that_exist(path: Path) -> None:
    keywords = (node for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(node, ast.keyword))
    for keyword in keywords:
        if keyword.arg != "hint":
            continue
        hint = OTHER_PROGRAMS.sub("", ast.unparse(keyword.value))
        assert set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", hint)) <= FLAGS, hint
        for words in re.findall(r"\bmedusa ([a-z]+)(?: ([a-z]+))?", hint):
            group = COMMANDS[words[:1]]
            assert not isinstance(group, click.Group) or not words[1] or words in COMMANDS, hint
