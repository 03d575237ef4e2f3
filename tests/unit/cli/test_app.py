"""Why decoding is plain, said once and with a remedy; where the default command goes."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click
import pytest

from cli_fakes import FakeLLM, Invoke
from medusakit.cli.app import rounding, slow_reason
from medusakit.cli.group import LazyGroup
from medusakit.cli.root import COMMANDS, cli
from medusakit.config import Config
from medusakit.errors import UsageError


def loaded(*, artifact: Any = None, budget: Any = None, withheld: bool = False, drafter: str = "suffix") -> Any:
    runtime = SimpleNamespace(capabilities=SimpleNamespace(weights="int4"))
    speculation = SimpleNamespace(drafter=SimpleNamespace(name=drafter), budget=budget)
    parts = SimpleNamespace(artifact=artifact, runtime=runtime, withheld=withheld, speculation=speculation)
    return SimpleNamespace(parts=parts)


def test_missing_heads_name_the_command_that_makes_them() -> None:
    message, hint = slow_reason(Config(model="m.gguf"), loaded())
    assert message == "no heads fit m.gguf: it drafts from prompt and answer (suffix)"
    assert hint == "medusa train all -m m.gguf --out ./heads"


def test_missing_heads_in_a_format_that_decodes_plainly() -> None:
    message, hint = slow_reason(Config(model="m.gguf"), loaded(withheld=True))
    assert message == "no heads fit m.gguf: decoding is plain"
    assert "medusa train all" in hint


def test_a_tree_that_does_not_pay_is_said() -> None:
    message, _ = slow_reason(Config(), loaded(artifact=object(), budget=SimpleNamespace(num_nodes=1)))
    assert "no tree pays with int4 weights" in message


def test_a_format_whose_tree_passes_round_otherwise_decodes_plainly_and_says_so() -> None:
    message, hint = slow_reason(Config(), loaded(artifact=object(), withheld=True))
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
        (Config(drafter="suffix"), loaded()),
        (Config(drafter="recycling"), loaded(drafter="recycling")),
        (Config(), loaded(artifact=object(), budget=SimpleNamespace(num_nodes=8))),
        (Config(budget=8), loaded(artifact=object())),
    ],
)
def test_nothing_is_said_where_there_is_nothing_to_say(config: Config, parts: Any) -> None:
    assert slow_reason(config, parts) == ("", "")


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


@pytest.mark.parametrize("way", ["flag", "env", "file"])
def test_the_drafter_reaches_the_loader(
    invoke: Invoke, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, way: str
) -> None:
    asked: dict[str, Any] = {}

    def load(model: str, **arguments: Any) -> FakeLLM:
        asked.update(arguments)
        return FakeLLM(headless="recycling")

    monkeypatch.setattr("medusakit.llm.LLM.load", load)
    file = tmp_path / "config.toml"
    file.write_text('drafter = "recycling"\n' if way == "file" else "")
    if way == "env":
        monkeypatch.setenv("MEDUSA_DRAFTER", "recycling")
    words = ["--drafter", "recycling"] if way == "flag" else []
    monkeypatch.setenv("MEDUSA_CONFIG", str(file))
    outcome = invoke("run", *words, "hello")
    assert outcome.code == 0
    assert asked["drafter"] == "recycling"
    assert "no heads fit" not in outcome.err, "what was asked for needs no advice"


def test_a_model_without_heads_names_the_train_command_once(invoke: Invoke, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("medusakit.llm.LLM.load", lambda model, **arguments: FakeLLM(headless="suffix"))
    outcome = invoke("run", "-m", "m.gguf", "hello")
    assert outcome.err.count("medusa train all -m m.gguf --out ./heads") == 1
    assert "it drafts from prompt and answer (suffix)" in outcome.err
