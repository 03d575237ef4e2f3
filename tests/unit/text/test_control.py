from __future__ import annotations

import pytest

from medusakit.text.control import ControlSplitter
from medusakit.text.vocabulary import ControlToken

TOKENS = [ControlToken(1, "<a>"), ControlToken(2, "<a><b>"), ControlToken(3, "[x]"), ControlToken(4, "<b>")]
SPLITTER = ControlSplitter(TOKENS)


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("", []),
        ("plain", ["plain"]),
        ("<a>", [1]),
        ("x<a>y[x]", ["x", 1, "y", 3]),
        ("<a><b>", [2]),
        ("<a><a><b><b>", [1, 2, 4]),
        ("<<a", ["<<a"]),
        ("<<a>", ["<", 1]),
    ],
)
def test_split(text: str, parts: list[str | int]) -> None:
    assert list(SPLITTER.split(text)) == parts


def test_white_space_that_belongs_to_a_token() -> None:
    splitter = ControlSplitter([ControlToken(1, "<l>", strips_left=True), ControlToken(2, "<r>", strips_right=True)])
    assert list(splitter.split("a \n<l> b")) == ["a", 1, " b"]
    assert list(splitter.split("a <r> \n b")) == ["a ", 2, "b"]
    assert list(splitter.split(" <l>")) == [1]
    assert list(splitter.split("<r>  ")) == [2]
    assert list(splitter.split("<r> <l>")) == [2, 1]


def test_no_tokens() -> None:
    assert list(ControlSplitter([]).split("<a>")) == ["<a>"]
    assert ControlSplitter([]).guard("<a>", "|") == "<a>"


@pytest.mark.parametrize("text", ["<a>", "x<a><b>y", "<a<a>", "[x][x", "<a><b><b>", "plain"])
def test_guard_leaves_no_token_and_loses_no_character(text: str) -> None:
    guarded = SPLITTER.guard(text, "\ue000")
    assert all(isinstance(part, str) for part in SPLITTER.split(guarded))
    assert guarded.replace("\ue000", "") == text


def test_guard_breaks_tokens_inside_tokens() -> None:
    splitter = ControlSplitter([ControlToken(1, "<a<b>"), ControlToken(2, "<b>")])
    assert list(splitter.split(splitter.guard("<a<b>", "|"))) == ["<|a<|b>"]
