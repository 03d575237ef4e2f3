"""Prompts that the model writes itself: what it is given to go on from, and what of its texts is kept."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from medusakit.errors import DatasetError, TokenizerError
from medusakit.train.drawn import draw_seeds, user_header
from medusakit.train.endpoint import Said
from medusakit.train.leakage import BenchmarkTexts
from train_fakes import ChatBytes

BENCHMARK = "What are the best three places to see in the old town of Lisbon?"
FORBIDDEN = BenchmarkTexts([BENCHMARK])


def texts(*said: Said):
    return lambda number: said[number % len(said)]


def test_the_model_goes_on_where_a_user_would_begin() -> None:
    assert ChatBytes().decode(user_header(ChatBytes())) == "<user>"  # type: ignore[arg-type]


def test_templates_that_hide_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ChatBytes, "chat_template", "always this")
    with pytest.raises(TokenizerError, match="does not show what a user says"):
        user_header(ChatBytes())  # type: ignore[arg-type]


def test_what_is_left_out_and_why(tmp_path: Path) -> None:
    write = texts(
        Said(" How does a tide come about? ", True, 9),
        Said("How does a tide come about?", True, 9),
        Said(BENCHMARK, True, 9),
        Said("Tell me of", False, 9),
        Said("Hi", True, 1),
        Said("long " * 400, True, 9),
        Said("Why is the sky dark at night?", True, 9),
    )
    dropped = draw_seeds(write, "toy", 2, tmp_path / "s.jsonl", license="MIT", forbidden=FORBIDDEN)
    found = [json.loads(line) for line in (tmp_path / "s.jsonl").read_text().splitlines()]
    assert [entry["prompt"] for entry in found] == ["How does a tide come about?", "Why is the sky dark at night?"]
    assert {entry["source"] for entry in found} == {"drawn from toy"} and found[0]["license"] == "MIT"
    assert dropped == {"repeated or answered": 1, "leaked": 1, "cut": 1, "short": 1, "long": 1}


def test_it_goes_on_after_what_was_drawn(tmp_path: Path) -> None:
    asked: list[int] = []

    def write(number: int) -> Said:
        asked.append(number)
        return Said(f"Question number {number}?", True, 5)

    draw_seeds(write, "toy", 3, tmp_path / "s.jsonl", forbidden=FORBIDDEN)
    draw_seeds(write, "toy", 5, tmp_path / "s.jsonl", forbidden=FORBIDDEN)
    draw_seeds(write, "toy", 5, tmp_path / "s.jsonl", forbidden=FORBIDDEN)
    assert asked == [0, 1, 2, 3, 4]
    assert len((tmp_path / "s.jsonl").read_text().splitlines()) == 5


def test_nothing_usable(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match="wrote no usable prompt: {'cut': 8}"):
        draw_seeds(texts(Said("and so on and so on", False, 9)), "toy", 2, tmp_path / "s.jsonl", forbidden=FORBIDDEN)
