"""The documentation speaks of what is there: glossary words, names, links, examples."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import medusakit
from medusakit.cli.root import COMMANDS

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def identifiers() -> set[str]:
    """Every name that the package's code defines or uses."""
    names: set[str] = set()
    for path in (ROOT / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names |= {getattr(node, field) for field in ("id", "attr", "arg", "name") if hasattr(node, field)}
    return names


def glossary() -> list[tuple[str, str]]:
    """(word, name in the code) of each row."""
    section = (ROOT / "docs" / "concepts.md").read_text(encoding="utf-8").partition("## Glossary")[2]
    rows = [line.split("|")[1:3] for line in section.splitlines() if line.startswith("| ")]
    return [(word.strip(), name.strip().strip("`")) for word, name in rows[1:]]


def test_glossary_words_are_the_codes_words() -> None:
    words, known = glossary(), identifiers()
    assert len(words) > 15
    assert [name for _, name in words if name not in known] == []


def test_library_page_lists_the_public_names() -> None:
    page = (ROOT / "docs" / "library.md").read_text(encoding="utf-8")
    assert [name for name in medusakit.__all__ if f"| `{name}` |" not in page] == []


def test_library_page_shows_the_example_that_the_tests_run() -> None:
    page = (ROOT / "docs" / "library.md").read_text(encoding="utf-8")
    example = (ROOT / "examples" / "stream.py").read_text(encoding="utf-8")
    assert example.partition("\n\n")[2] in page


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_and_commands_exist(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    links = [target for target in re.findall(r"\]\(([^)#]+)", text) if "://" not in target]
    assert [target for target in links if not (page.parent / target).exists()] == []
    used = re.findall(r"^medusa ([a-z]+)", text, flags=re.MULTILINE)
    assert [name for name in used if name not in COMMANDS] == []
