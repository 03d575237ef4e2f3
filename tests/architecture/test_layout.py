"""What keeps the tree readable: import contracts, module sizes, where printing is allowed, what the package exports."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import medusakit

ROOT = Path(__file__).parents[2]
SOURCES = sorted((ROOT / "src" / "medusakit").rglob("*.py"))
MAX_LINES = 400
MAX_FUNCTION_LINES = 60


def test_import_contracts_hold() -> None:
    """The contracts stand in pyproject.toml."""
    command = [Path(sys.executable).parent / "lint-imports", "--no-cache"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT / "src")))
def test_module_is_small_documented_and_silent(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    tree = ast.parse(text)
    assert text.count("\n") <= MAX_LINES
    assert not text.strip() or ast.get_docstring(tree), "a module says what it is"
    assert "cli" in path.parts or not list(_prints(tree)), "only cli/ prints"
    assert not list(_long_functions(tree))


def _prints(tree: ast.Module) -> list[int]:
    calls = (node for node in ast.walk(tree) if isinstance(node, ast.Call))
    return [call.lineno for call in calls if isinstance(call.func, ast.Name) and call.func.id == "print"]


def _long_functions(tree: ast.Module) -> list[str]:
    functions = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))
    return [one.name for one in functions if (one.end_lineno or 0) - one.lineno >= MAX_FUNCTION_LINES]


def test_public_names_are_sorted_and_exist() -> None:
    """Acronyms first, then in order (isort's way); each name is the thing itself."""
    assert medusakit.__all__ == sorted(medusakit.__all__, key=lambda name: (not name.isupper(), name))
    for name in medusakit.__all__:
        assert getattr(medusakit, name).__name__ == name
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        _ = medusakit.Nothing
