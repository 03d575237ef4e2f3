"""Nothing in the repository belongs to one machine, and no prompt of the benchmark is in the training data."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TEXT_SUFFIXES = {".py", ".md", ".toml", ".yml", ".yaml", ".json", ".cfg", ".sh", ".txt", ""}
# Written in pieces, so that this file does not find itself.
FORBIDDEN = {
    "a path of one machine": re.compile(
        "|".join(("/" + "work/", "/" + "root/", "/" + "home/", "/" + "tmp/", "/" + "opt/"))
    ),
    "a package host": re.compile(
        "|".join(("pypi" + r"\.org", "python" + "hosted", "extra-" + "index-url", "find-" + "links"))
    ),
}


def tracked() -> list[Path]:
    """Files git knows, text ones only (data files hold other people's prose)."""
    done = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True)
    paths = [ROOT / name for name in done.stdout.split("\0") if name]
    return [path for path in paths if path.suffix in TEXT_SUFFIXES and path.is_file() and path.stat().st_size < 400_000]


@pytest.mark.parametrize("what", FORBIDDEN)
def test_no_line_names(what: str) -> None:
    found = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in tracked()
        for number, line in enumerate(path.read_text(encoding="utf-8", errors="ignore").splitlines(), start=1)
        if FORBIDDEN[what].search(line)
    ]
    assert not found


def test_licence_is_whole() -> None:
    text = (ROOT / "LICENSE").read_text(encoding="utf-8")
    assert "Version 2.0, January 2004" in text
    assert "END OF TERMS AND CONDITIONS" in text
