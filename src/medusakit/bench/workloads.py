"""Questions to measure with: the suites that the package carries, or a file of one's own.

Spec-Bench's question format, one JSON object a line: `question_id`, `category`, `turns` (a list of texts; later ones
continue the conversation). In one's own file `question_id` and `category` may be left out. Other keys are ignored.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path
from typing import Any

from medusakit.errors import UsageError

MT_BENCH = ("writing", "roleplay", "reasoning", "math", "coding", "extraction", "stem", "humanities")
SUITES = {
    "mt-bench": "80 questions of two turns in 8 categories",
    "spec-bench": "480 questions in 6 tasks: mt-bench, translation, summarization, qa, math_reasoning, rag",
}
_NO_CATEGORY = "all"


@dataclass(frozen=True, slots=True)
class Question:
    """id: the file's, as text. turns: what the user says, in order."""

    id: str
    category: str
    turns: tuple[str, ...]


def load_suite(name: str, *, limit: int | None = None) -> list[Question]:
    """The questions of a suite (see SUITES) or of a JSONL file.

    limit  as many questions, spread evenly over categories: the first of each, then the second of each, ...
    Raises UsageError for a name that is neither, a file that is not in the format, a limit below 1.
    """
    if limit is not None and limit < 1:
        raise UsageError(f"the limit is {limit}, expected 1 or more questions", hint="--limit 16")
    questions = _suite(name) if name in SUITES else read_questions(_own_file(name))
    return questions if limit is None else spread(questions, limit)


def read_questions(path: Path) -> list[Question]:
    """All questions of a JSONL file. Raises UsageError with the line that is wrong."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} cannot be read: {error}", hint="--suite mt-bench") from None
    questions = _parse(lines, str(path))
    if not questions:
        raise UsageError(f"{path} has no questions", hint='one a line: {"turns": ["Explain a B-tree"]}')
    return questions


def spread(questions: Sequence[Question], limit: int) -> list[Question]:
    """The first `limit` questions when categories take turns, in their own order."""
    rounds: dict[str, int] = {}
    places: list[tuple[int, int]] = []
    for index, question in enumerate(questions):
        rounds[question.category] = rounds.get(question.category, -1) + 1
        places.append((rounds[question.category], index))
    return [questions[index] for index in sorted(index for _, index in sorted(places)[:limit])]


def _suite(name: str) -> list[Question]:
    text = (resources.files("medusakit") / "data" / "spec-bench.jsonl").read_text(encoding="utf-8")
    questions = _parse(text.splitlines(), "spec-bench.jsonl")
    if name == "mt-bench":
        return [question for question in questions if question.category in MT_BENCH]
    return [replace(question, category=_task(question.category)) for question in questions]


def _task(category: str) -> str:
    """Spec-Bench counts MT-Bench's eight categories as one of its six tasks."""
    return "mt-bench" if category in MT_BENCH else category


def _own_file(name: str) -> Path:
    path = Path(name).expanduser()
    if path.is_file():
        return path
    near = difflib.get_close_matches(name, SUITES, n=1)
    raise UsageError(
        f"no suite and no file {name!r}; suites: {', '.join(SUITES)}",
        hint=f"--suite {near[0] if near else 'mt-bench'}",
    )


def _parse(lines: Iterable[str], where: str) -> list[Question]:
    numbered = ((number, line) for number, line in enumerate(lines, start=1) if line.strip())
    questions = [_question(line, number, f"{where}, line {number}") for number, line in numbered]
    ids = [question.id for question in questions]
    if len(set(ids)) < len(ids):
        twice = next(id for index, id in enumerate(ids) if id in ids[:index])
        raise UsageError(
            f"{where} has the question_id {twice!r} twice; figures are by question", hint="--suite mt-bench"
        )
    return questions


def _question(line: str, number: int, where: str) -> Question:
    try:
        entry = json.loads(line)
    except json.JSONDecodeError as error:
        raise UsageError(f"{where} is not JSON: {error}", hint="--suite mt-bench") from None
    if not isinstance(entry, dict):
        raise UsageError(
            f"{where} holds a {type(entry).__name__}, expected an object with turns", hint="--suite mt-bench"
        )
    category = entry.get("category", _NO_CATEGORY)
    return Question(str(entry.get("question_id", number)), str(category), _turns(entry, where))


def _turns(entry: Mapping[str, Any], where: str) -> tuple[str, ...]:
    turns = entry.get("turns")
    if not isinstance(turns, list) or not turns or not all(isinstance(turn, str) and turn.strip() for turn in turns):
        raise UsageError(
            f"{where}: turns is {turns!r}, expected a list of texts", hint='{"turns": ["Explain a B-tree"]}'
        )
    return tuple(turns)
