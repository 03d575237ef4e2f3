"""Nothing that we ship for training repeats a benchmark prompt, and the check would notice if it did."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from medusakit.train.leakage import BenchmarkTexts, spec_bench_texts
from medusakit.train.seeds import read_json_lines, read_seeds
from medusakit.train.templates import load_templates

RECIPES = Path(__file__).parents[3] / "recipes"
MT_BENCH = (
    "Compose an engaging travel blog post about a recent trip to Hawaii, highlighting cultural experiences and "
    "must-see attractions."
)


@cache
def bench() -> BenchmarkTexts:
    return spec_bench_texts()


@pytest.mark.parametrize(
    "text",
    [
        MT_BENCH,
        MT_BENCH.upper().replace(",", " --"),
        MT_BENCH.replace("Hawaii", "Bali").replace("engaging", "interesting"),
        "You are a helpful writer. " + MT_BENCH + " Use 300 words.",
        "Rewrite your previous response. Start every sentence with the letter A.",
        "ich verstehe nur bahnhof!",
        "Who played Anna in Once Upon a Time",
    ],
)
def test_copies_and_near_copies_are_found(text: str) -> None:
    assert bench().leak(text) is not None


@pytest.mark.parametrize(
    "text",
    [
        "Write a travel blog post about a weekend in Lisbon.",
        "Compose a poem about must-see attractions.",
        "Rewrite it as a poem.",
        "",
    ],
)
def test_prompts_of_the_same_kind_are_not(text: str) -> None:
    assert bench().leak(text) is None


def test_a_copied_passage_in_a_long_text_is_found() -> None:
    article = " ".join(f"word{i}" for i in range(300))
    texts = BenchmarkTexts([article])
    copied = " ".join(f"word{i}" for i in range(100, 113))
    assert texts.leak(f"an introduction {copied} and an end") == article
    assert texts.leak(f"an introduction {copied[:-8]} and an end") is None


def test_every_benchmark_turn_is_known_to_the_check() -> None:
    import json
    from importlib import resources

    lines = (resources.files("medusakit") / "data/spec-bench.jsonl").read_text(encoding="utf-8").splitlines()
    turns = [turn for line in lines for turn in json.loads(line)["turns"]]
    assert len(lines) == 480 and len(turns) == 560
    assert all(bench().leak(turn) for turn in turns)


def test_no_template_prompt_leaks() -> None:
    conversations = list(load_templates().conversations(3000, turn_shares=(1.0, 1.0), seed=11))
    leaks = [turn for seed in conversations for turn in seed.turns if bench().leak(turn)]
    assert len(conversations) == 3000 and leaks == []


@pytest.mark.parametrize("file", sorted(RECIPES.rglob("*.jsonl*")), ids=lambda p: p.name)
def test_no_shipped_training_prompt_leaks(file: Path) -> None:
    leaks = [turn for seed in read_seeds(file) for turn in seed.turns if bench().leak(turn)]
    assert leaks == []


def test_shipped_training_data_names_its_licences() -> None:
    files = sorted(RECIPES.rglob("*.jsonl*"))
    assert len(files) >= 2
    for file in files:
        assert {entry["license"] for _, entry in read_json_lines(file)} <= {"MIT", "Apache-2.0", "project"}
