"""Click pieces of our own: a group that imports a command when it is used, and options that every command has.

The root group also has a default command: `medusa "prompt"` is `medusa run "prompt"`.
"""

from __future__ import annotations

import difflib
import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

import click

from medusakit.errors import MedusaError, UsageError

Decorated = TypeVar("Decorated", bound=Callable[..., Any])
FLAGS_KEY = "medusakit.flags"
DEFAULT_COMMAND = "run"
ROOT_FLAGS = ("--debug", "--quiet", "-q")


def _remember(context: click.Context, parameter: click.Parameter, value: Any) -> Any:
    """Keep a common option for the `App`, wherever on the line it stood."""
    if value:
        context.meta[f"medusakit.{parameter.name}"] = value
    return value


def common_options() -> list[click.Option]:
    """Options of every command, in any position."""
    return [
        click.Option(
            ["--config", "config_file"],
            type=click.Path(dir_okay=False, path_type=Path),
            expose_value=False,
            callback=_remember,
            help="Read settings from this file.",
        ),
        click.Option(
            ["-q", "--quiet"], is_flag=True, expose_value=False, callback=_remember, help="Only the result, no notes."
        ),
        click.Option(["--debug"], is_flag=True, expose_value=False, callback=_remember, help="Show tracebacks."),
    ]


class Command(click.Command):
    """A command with the common options at its end. Its errors name a setting by where its value came from."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.params.extend(common_options())

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except MedusaError as error:
            _name_origins(error)
            raise


def _name_origins(error: MedusaError) -> None:
    from medusakit.cli.app import current_app
    from medusakit.config import named_by_origin

    try:
        origins = current_app().resolved.origins
    except MedusaError:
        return  # the settings themselves are wrong: the error says where
    error.message = named_by_origin(error.message, origins)
    error.hint = None if error.hint is None else named_by_origin(error.hint, origins)


class Group(click.Group):
    """A group whose commands are `Command`s, listed in the order in which they were added."""

    command_class = Command

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The first sentence of each command's help, whole: click would cut it at the end of the line."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, self.commands[name].get_short_help_str(200)) for name in self.commands])


class LazyGroup(Group):
    """lazy: command name -> (module:attribute, one line of help). The module is imported when the command is used."""

    def __init__(self, *args: Any, lazy: Mapping[str, tuple[str, str]], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.lazy = lazy
        self.params.extend(common_options()[1:])

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.lazy)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.lazy:
            return None
        module, attribute = self.lazy[cmd_name][0].split(":")
        command = getattr(import_module(module), attribute)
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list of commands from the table, without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in self.lazy.items()])

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, self.with_default(args, piped=not sys.stdin or not sys.stdin.isatty()))

    def with_default(self, args: list[str], *, piped: bool) -> list[str]:
        """Insert the default command where the line names none. Raises UsageError on a misspelt command."""
        split = next((place for place, arg in enumerate(args) if arg not in ROOT_FLAGS), len(args))
        head, rest = args[:split], args[split:]
        if not rest:
            return [*head, DEFAULT_COMMAND if piped else "--help"]
        if rest[0] in self.lazy or rest[0] in ("--help", "-h", "--version"):
            return args
        close = difflib.get_close_matches(rest[0], self.lazy, n=1, cutoff=0.7)
        if close and len(rest[0].split()) == 1 and not rest[0].startswith("-"):
            raise UsageError(
                f"no such command: {rest[0]} (did you mean {close[0]}?)",
                hint=f'medusa {close[0]}      or, as a prompt: medusa run "{rest[0]}"',
            )
        return [*head, DEFAULT_COMMAND, *rest]
