"""What a person is told: every error but those about misuse inside the program says what would work."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from medusakit import errors

PACKAGE = Path(errors.__file__).parent
KINDS = {name for name, kind in vars(errors).items() if isinstance(kind, type) and issubclass(kind, errors.MedusaError)}
# `runtimes`: contracts between modules, which only a programmer breaks; the two stages say what they expected instead
EXEMPT = ("runtimes/", "train/answers.py", "train/seeds.py")
SOURCES = [path for path in sorted(PACKAGE.rglob("*.py")) if not str(path.relative_to(PACKAGE)).startswith(EXEMPT)]


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_errors_say_what_would_work(path: Path) -> None:
    calls = (node for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(node, ast.Call))
    made = [call for call in calls if isinstance(call.func, ast.Name) and call.func.id in KINDS]
    assert not [call.lineno for call in made if not any(word.arg == "hint" for word in call.keywords)]
