"""docs/cli.md is what the code says."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from medusakit.cli.reference import render
from medusakit.cli.root import COMMANDS, cli
from medusakit.config import KEYS

PAGE = Path(__file__).parents[3] / "docs" / "cli.md"


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == render(), "run: make docs"


def test_every_command_and_setting_is_on_the_page() -> None:
    page = render()
    assert all(f"## `medusa {name}`" in page for name in COMMANDS)
    assert all(f"`{key.env}`" in page for key in KEYS.values())


def commands(group: click.Group = cli, name: str = "medusa") -> Iterator[tuple[str, click.Command]]:
    """Every command that is no group, by what one writes."""
    context = click.Context(group)
    for word in group.list_commands(context):
        command = group.get_command(context, word)
        assert command is not None
        if isinstance(command, click.Group):
            yield from commands(command, f"{name} {word}")
        else:
            yield f"{name} {word}", command


@pytest.mark.parametrize(
    ("name", "command"), list(commands()), ids=lambda value: value if isinstance(value, str) else ""
)
def test_every_command_has_the_common_options(name: str, command: click.Command) -> None:
    flags = {flag for parameter in command.params for flag in parameter.opts}
    assert {"--config", "--quiet", "-q", "--debug"} <= flags, name


def test_help_tells_whether_a_switch_is_on() -> None:
    helps = {parameter.name: parameter for parameter in dict(commands())["medusa serve"].params}
    told = {name: helps[name].help for name in ("enable_tree_cache", "any_model")}  # type: ignore[attr-defined]
    assert told["enable_tree_cache"].endswith("[on]") and told["any_model"].endswith("[off]")


def test_help_shows_words_of_ours_for_numbers() -> None:
    assert "INTEGER" not in render() and "FLOAT" not in render()
