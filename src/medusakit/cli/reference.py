"""docs/cli.md, made from the commands and settings themselves: `python -m medusakit.cli.reference docs/cli.md`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import click

from medusakit.cli.root import cli
from medusakit.config import KEYS, Key

INTRODUCTION = """\
# Command line

Made from the code by `make docs`; a test fails when it is out of date.

Every command takes `--config FILE`, `-q/--quiet` and `--debug`. Exit codes: 0 well, 2 usage, 3 model or heads,
4 the machine, 130 interrupted. Answers and tables go to stdout, figures and notes to stderr. `NO_COLOR` is respected;
marks on tokens use underline as well as colour.
"""
SETTINGS = """\
## Settings

A value comes from the first of: flag, environment variable, configuration file (`medusa config path`), the heads'
own recommendation, default. `medusa config show` says which. A key that does not exist is an error.

| TOML key | flag | variable | default | meaning |
|---|---|---|---|---|
"""


def render() -> str:
    """The whole page."""
    context = click.Context(cli, info_name="medusa", terminal_width=100, help_option_names=["-h", "--help"])
    commands = "\n".join(_command(cli, context))
    rows = "\n".join(_row(key) for key in KEYS.values())
    return f"{INTRODUCTION}\n{commands}\n{SETTINGS}{rows}\n"


def _command(command: click.Command, context: click.Context) -> Iterator[str]:
    yield f"## `{context.command_path}`\n\n```text\n{command.get_help(context).strip()}\n```\n"
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            child = command.get_command(context, name)
            assert child is not None
            yield from _command(child, click.Context(child, parent=context, info_name=name, terminal_width=100))


def _row(key: Key) -> str:
    flags = ", ".join(f"`{flag}`" for flag in (*key.setting.flags, key.flag))
    default = "unset" if key.default in (None, ()) else f"`{key.default}`"
    meaning = f"{key.setting.help} ({key.expectation()})".replace("|", "\\|")
    return f"| `{key.name}` | {flags} | `{key.env}` | {default} | {meaning} |"


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(render(), encoding="utf-8")
