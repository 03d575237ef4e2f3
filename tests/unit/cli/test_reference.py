"""docs/cli.md is what the code says."""

from __future__ import annotations

from pathlib import Path

from medusakit.cli.reference import render
from medusakit.cli.root import COMMANDS
from medusakit.config import KEYS

PAGE = Path(__file__).parents[3] / "docs" / "cli.md"


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == render(), "run: make docs"


def test_every_command_and_setting_is_on_the_page() -> None:
    page = render()
    assert all(f"## `medusa {name}`" in page for name in COMMANDS)
    assert all(f"`{key.env}`" in page for key in KEYS.values())
