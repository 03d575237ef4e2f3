"""Why decoding is plain, said once and with a remedy; where the default command goes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import click
import pytest

from medusakit.cli.app import plain_reason, rounding
from medusakit.cli.group import LazyGroup
from medusakit.cli.root import COMMANDS, cli
from medusakit.config import Config
from medusakit.errors import UsageError


def loaded(*, artifact: Any = None, budget: Any = None, withheld: bool = False) -> Any:
    runtime = SimpleNamespace(capabilities=SimpleNamespace(weights="int4"))
    parts = SimpleNamespace(artifact=artifact, budget=budget, runtime=runtime, withheld=withheld)
    return SimpleNamespace(parts=parts)


def test_missing_heads_name_the_command_that_makes_them() -> None:
    message, hint = plain_reason(Config(model="m.gguf"), loaded())
    assert "no heads fit m.gguf" in message
    assert hint == "medusa train all -m m.gguf --out ./heads"


def test_a_tree_that_does_not_pay_is_said() -> None:
    message, _ = plain_reason(Config(), loaded(artifact=object(), budget=SimpleNamespace(num_nodes=1)))
    assert "no tree pays with int4 weights" in message


def test_a_format_whose_tree_passes_round_otherwise_decodes_plainly_and_says_so() -> None:
    message, hint = plain_reason(Config(), loaded(artifact=object(), withheld=True))
    assert "int4 weights" in message and "--weights f32" in hint


@pytest.mark.parametrize(
    ("tensors", "said"), [(0, ""), (211, "int8 weights: 211 tensors of the file are rounded again")]
)
def test_a_second_rounding_is_said(tensors: int, said: str) -> None:
    runtime = SimpleNamespace(capabilities=SimpleNamespace(weights="int8", requantised=tensors))
    llm: Any = SimpleNamespace(parts=SimpleNamespace(runtime=runtime))
    assert rounding(llm).startswith(said) and bool(rounding(llm)) == bool(said)


@pytest.mark.parametrize(
    ("config", "parts"),
    [
        (Config(heads="none"), loaded()),
        (Config(), loaded(artifact=object(), budget=SimpleNamespace(num_nodes=8))),
        (Config(budget=8), loaded(artifact=object())),
    ],
)
def test_nothing_is_said_where_there_is_nothing_to_say(config: Config, parts: Any) -> None:
    assert plain_reason(config, parts) == ("", "")


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (["chat"], ["chat"]),
        (["--debug", "chat"], ["--debug", "chat"]),
        (["--version"], ["--version"]),
        (["hello there"], ["run", "hello there"]),
        (["-m", "x.gguf", "hi"], ["run", "-m", "x.gguf", "hi"]),
        (["-q", "hi"], ["-q", "run", "hi"]),
        (["chat with me"], ["run", "chat with me"]),
    ],
)
def test_default_command(args: list[str], expected: list[str]) -> None:
    assert isinstance(cli, LazyGroup)
    assert cli.with_default(args, piped=False) == expected


def test_no_words_mean_help_on_a_terminal_and_run_in_a_pipe() -> None:
    assert isinstance(cli, LazyGroup)
    assert cli.with_default([], piped=False) == ["--help"]
    assert cli.with_default([], piped=True) == ["run"]


def test_close_to_a_command_is_refused() -> None:
    assert isinstance(cli, LazyGroup)
    with pytest.raises(UsageError, match="did you mean doctor"):
        cli.with_default(["docter"], piped=False)


def test_lazy_group_knows_only_its_table() -> None:
    context = click.Context(cli)
    assert cli.list_commands(context) == list(COMMANDS)
    assert cli.get_command(context, "nothing") is None
