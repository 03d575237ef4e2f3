"""The commands of README.md and docs/getting-started.md do what they say, on the real model with short answers."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"(<!-- slow -->\n)?```(bash|python)\n(.*?)```", re.DOTALL)
SHORT = {"MEDUSA_MAX_TOKENS": "12"}


@dataclass(frozen=True)
class Block:
    slow: bool
    language: str
    code: str


def blocks(page: str) -> list[Block]:
    text = (ROOT / page).read_text(encoding="utf-8")
    return [Block(bool(slow), language, code) for slow, language, code in BLOCK.findall(text)]


def commands(*, slow: bool) -> list[str]:
    """Lines of README's shell blocks, but for make's targets."""
    chosen = [block.code for block in blocks("README.md") if block.language == "bash" and block.slow is slow]
    return [line for code in chosen for line in code.strip().splitlines() if not line.startswith("make ")]


def run(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """A shell line, with this environment's `medusa` first on the path."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = os.environ | SHORT | {"PATH": path}
    return subprocess.run(
        ["bash", "-ec", command],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_first_block_is_two_make_targets() -> None:
    first = blocks("README.md")[0].code.split("\n")[:-1]
    assert first == ["make demo", "make test"]
    for line in first:
        dry = subprocess.run(["make", "-n", line.split()[1]], cwd=ROOT, capture_output=True, text=True, check=False)
        assert dry.returncode == 0, dry.stderr


def test_readme_has_commands_to_run() -> None:
    assert len(commands(slow=False)) >= 5
    assert len(commands(slow=True)) >= 3


@pytest.mark.model
@pytest.mark.smoke
@pytest.mark.parametrize("command", commands(slow=False))
def test_command(command: str, tmp_path: Path) -> None:
    done = run(command, tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()
    assert "Traceback" not in done.stderr


@pytest.mark.model
@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_slow_commands_in_order(tmp_path: Path) -> None:
    for command in commands(slow=True):
        done = run(command, tmp_path)
        assert done.returncode == 0, f"{command}\n{done.stderr}"


@pytest.mark.model
@pytest.mark.smoke
def test_python_block(tmp_path: Path) -> None:
    (code,) = [block.code for block in blocks("README.md") if block.language == "python"]
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.split()) > 5


@pytest.mark.model
@pytest.mark.smoke
@pytest.mark.parametrize("example", sorted((ROOT / "examples").glob("*.py")), ids=lambda path: path.name)
def test_example(example: Path, tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, str(example)], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()
    assert "same as alone: False" not in done.stdout


@pytest.mark.model
@pytest.mark.slow
def test_the_plugins_page_is_a_program(tmp_path: Path) -> None:
    code = "\n".join(block.code for block in blocks("docs/runtimes.md") if block.language == "python")
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert re.search(r"\d+ tokens in \d+ steps, [1-9]", done.stdout)
