"""--tree: a name, a shape, or a file of nodes, for every command that decodes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cli_fakes import Invoke
from medusakit.cli.trees import read_tree
from medusakit.errors import UsageError
from medusakit.llm import LLM

PATHS = [[0], [1], [0, 0]]
TREE = ((0,), (1,), (0, 0))


def written(folder: Path, content: object) -> str:
    file = folder / "tree.json"
    file.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return str(file)


@pytest.mark.parametrize("text", ["auto", "dynamic", "static", "2x3"])
def test_a_name_or_a_shape_is_no_file(text: str) -> None:
    assert read_tree(text) == text


def test_a_file_of_paths(tmp_path: Path) -> None:
    assert read_tree(written(tmp_path, PATHS)) == TREE


def test_what_tree_show_writes_can_be_used(invoke: Invoke, tmp_path: Path) -> None:
    first, second = written(tmp_path, PATHS), tmp_path / "again.json"
    assert invoke("tree", "show", "--tree", first, "--json", str(second)).code == 0
    assert read_tree(str(second)) == TREE
    drawn = invoke("tree", "show", "--tree", str(second)).out
    assert "4 rows" in drawn and "given, not chosen" in drawn


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[[0], ", "holds no JSON"),
        ("[" * 100_000, "holds no JSON"),
        ([[1, 0]], "comes before its parent"),
        ([["a"]], "path 0 holds a"),
        ({"nodes": [{"path": [0]}, {}]}, "path 1 is None"),
        ({"tree": PATHS}, "dict is neither a name nor a list"),
        (7, "int is neither a name nor a list"),
    ],
)
def test_files_that_hold_no_tree_are_named(invoke: Invoke, tmp_path: Path, content: object, message: str) -> None:
    file = written(tmp_path, content)
    with pytest.raises(UsageError, match=message) as refusal:
        read_tree(file)
    assert refusal.value.message.startswith(file) and refusal.value.hint
    outcome = invoke("run", "--tree", file, "hello")  # before a model is loaded
    assert outcome.code == 2 and message in outcome.err and "Traceback" not in outcome.err


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="nor a file") as refusal:
        read_tree(str(tmp_path / "none.json"))
    assert "2x3" in str(refusal.value.hint)
    for text in ("x" * 5000, "~nobody-of-this-name/tree.json"):
        with pytest.raises(UsageError, match="nor a file"):
            read_tree(text)


@pytest.mark.parametrize("command", [("run", "hello"), ("chat",), ("compare", "hello")])
def test_commands_that_decode_load_with_it(
    invoke: Invoke, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, command: tuple[str, ...]
) -> None:
    loaded: list[dict[str, Any]] = []

    def load(model: str, **options: Any) -> LLM:
        loaded.append(options)
        raise UsageError("enough", hint="none")

    monkeypatch.setattr(LLM, "load", load)
    assert invoke(*command, "--tree", written(tmp_path, PATHS)).code == 2
    assert [options["tree"] for options in loaded] == [TREE]
