from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from medusakit.bench.workloads import MT_BENCH, SUITES, Question, load_suite, read_questions, spread
from medusakit.errors import UsageError


def test_mt_bench() -> None:
    questions = load_suite("mt-bench")
    assert [question.id for question in questions] == [str(number) for number in range(81, 161)]
    assert Counter(question.category for question in questions) == dict.fromkeys(MT_BENCH, 10)
    assert all(len(question.turns) == 2 for question in questions)


def test_spec_bench() -> None:
    questions = load_suite("spec-bench")
    tasks = {"mt-bench", "translation", "summarization", "qa", "math_reasoning", "rag"}
    assert Counter(question.category for question in questions) == dict.fromkeys(tasks, 80)
    assert [q.turns for q in questions if q.category == "mt-bench"] == [q.turns for q in load_suite("mt-bench")]
    assert set(SUITES) == {"mt-bench", "spec-bench"}


@pytest.mark.parametrize(
    ("suite", "limit", "each"), [("mt-bench", 16, {2}), ("mt-bench", 20, {2, 3}), ("spec-bench", 6, {1})]
)
def test_a_limit_is_spread(suite: str, limit: int, each: set[int]) -> None:
    questions = load_suite(suite, limit=limit)
    assert len(questions) == limit
    assert set(Counter(question.category for question in questions).values()) == each
    assert questions == [question for question in load_suite(suite) if question in questions]  # in the file's order


def test_spread_over_uneven_categories() -> None:
    questions = [Question(str(n), category, ("x",)) for n, category in enumerate("aaaabc")]
    assert [question.id for question in spread(questions, 4)] == ["0", "1", "4", "5"]
    assert [question.id for question in spread(questions, 5)] == ["0", "1", "2", "4", "5"]
    assert spread(questions, 99) == questions


def test_ones_own_file(tmp_path: Path) -> None:
    path = tmp_path / "own.jsonl"
    entries = [{"turns": ["a", "b"]}, {"question_id": 9, "category": "code", "turns": ["c"], "reference": ["x"]}]
    path.write_text("\n\n".join(map(json.dumps, entries)) + "\n")
    assert load_suite(str(path)) == [Question("1", "all", ("a", "b")), Question("9", "code", ("c",))]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"turns": ["a"]}\n{"turns": ', "line 2 is not JSON"),
        ('["a"]', "line 1 holds a list"),
        ('{"prompt": "a"}', "line 1: turns is None"),
        ('{"turns": "a"}', "line 1: turns is 'a'"),
        ('{"turns": []}', "turns is"),
        ('{"turns": [" "]}', "turns is"),
        ('{"question_id": 1, "turns": ["a"]}\n{"question_id": 1, "turns": ["b"]}', "question_id '1' twice"),
        ("\n", "has no questions"),
    ],
)
def test_damage_is_named(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "own.jsonl"
    path.write_text(text)
    with pytest.raises(UsageError, match=message):
        read_questions(path)


def test_unknown_names_and_limits() -> None:
    with pytest.raises(UsageError, match="no suite and no file 'mtbench'; suites: mt-bench, spec-bench") as caught:
        load_suite("mtbench")
    assert caught.value.hint == "--suite mt-bench"
    with pytest.raises(UsageError, match="limit is 0"):
        load_suite("mt-bench", limit=0)
