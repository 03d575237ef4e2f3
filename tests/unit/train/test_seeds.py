"""Seeds: varied, deterministic, free of repeats, of what is answered, and of the benchmark."""

from __future__ import annotations

import gzip
import json
import random
from collections import Counter
from pathlib import Path

import pytest

from medusakit.errors import DatasetError
from medusakit.train.leakage import BenchmarkTexts
from medusakit.train.seeds import SeedConfig, make_seeds, read_seeds
from medusakit.train.templates import fill, load_templates

NONE = BenchmarkTexts([])


def test_slots_are_filled_consistently_and_nested() -> None:
    lists = {"person": ["Ann", "Bob"], "text": ["{person} has {n:3-3}"]}
    filled = fill("{person} meets {person2}. {person} waves. {text}. {n2:1-9}", lists, random.Random(0))
    first, second = ("Ann", "Bob") if filled.startswith("Ann") else ("Bob", "Ann")
    assert filled.startswith(f"{first} meets {second}. {first} waves. {first} has 3. ") and "{" not in filled


def test_templates_are_varied_deterministic_and_complete() -> None:
    make = lambda seed: list(load_templates().conversations(2000, turn_shares=(0.5, 0.1), seed=seed))  # noqa: E731
    first = make(0)
    assert first == make(0) and first != make(1)
    assert len({seed.turns[0] for seed in first}) == 2000
    assert not any("{n" in turn or "{topic" in turn for seed in first for turn in seed.turns)
    by_category = Counter(seed.category for seed in first)
    for category in ("writing", "roleplay", "reasoning", "math", "coding", "extraction", "stem", "humanities"):
        assert by_category[category] > 60, by_category
    lengths = Counter(len(seed.turns) for seed in first)
    assert 0.45 < (lengths[2] + lengths[3]) / 2000 < 0.55 and 0.07 < lengths[3] / 2000 < 0.13


def test_files_are_merged_filtered_and_reported(tmp_path: Path) -> None:
    prompts = [
        "What is rust?",
        "What is rust?",
        "Name a fish.",
        "secret benchmark question number one please",
        "x" * 99,
    ]
    (tmp_path / "in.jsonl").write_text(
        "".join(json.dumps({"prompt": p, "source": "mine", "license": "MIT"}) + "\n" for p in prompts)
    )
    with gzip.open(tmp_path / "done.jsonl.gz", "wt") as file:
        file.write(json.dumps({"prompt": "Name a fish.", "gen": [1]}) + "\n")
    config = SeedConfig(
        templates=20, files=(str(tmp_path / "in.jsonl"),), answered=(str(tmp_path / "done.jsonl.gz"),), max_chars=90
    )
    report = make_seeds(
        config,
        tmp_path / "out/seeds.jsonl",
        forbidden=BenchmarkTexts(["Secret benchmark question: number one, please!"]),
    )
    seeds = read_seeds(tmp_path / "out/seeds.jsonl")
    assert [s.turns[0] for s in seeds if s.source == "mine"] == ["What is rust?"]
    assert report.num == len(seeds)
    assert report.dropped["leaked"] == 1 and report.dropped["repeated or answered"] == 2 and report.dropped["long"] >= 1
    assert report.licenses == {"mine": "MIT", "medusakit templates": "Apache-2.0"}


def test_the_same_config_writes_the_same_file(tmp_path: Path) -> None:
    for name in ("a", "b"):
        make_seeds(SeedConfig(templates=50), tmp_path / name, forbidden=NONE)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"prompt": "ok"}\n{"prompt": ', "line 2: not JSON"),
        ('{"prompt": "ok"}\n\n{"text": "no"}', "line 3: expected a non-empty"),
        ('{"turns": ["a", ""]}', "line 1: expected a non-empty"),
        ("[1]", "line 1: expected an object"),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, line: str, message: str) -> None:
    (tmp_path / "in.jsonl").write_text(line)
    with pytest.raises(DatasetError, match=message):
        read_seeds(tmp_path / "in.jsonl")


def test_missing_files_and_empty_results_are_errors(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match="cannot be read"):
        read_seeds(tmp_path / "no.jsonl")
    with pytest.raises(DatasetError, match="no prompt is left"):
        make_seeds(SeedConfig(templates=0), tmp_path / "out", forbidden=NONE)
    assert not (tmp_path / "out").exists()
