"""What may not be loaded by `import medusakit` and `medusa --help`, and how fast the help is."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

HEAVY = ("numpy", "torch", "onnxruntime", "rich", "pydantic", "tokenizers")
HELP = "import sys; from medusakit.cli.main import main; sys.argv = ['medusa', '--help']; code = main()"
HELP_LIMIT_S = 0.150


def loaded_by(statement: str) -> set[str]:
    """Top-level modules in sys.modules after the statement."""
    script = f"{statement}; print('LOADED', *{{name.partition('.')[0] for name in __import__('sys').modules}})"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return set(done.stdout.rpartition("LOADED")[2].split())


@pytest.mark.parametrize("statement", ["import medusakit", HELP], ids=["import", "help"])
def test_nothing_heavy_is_loaded(statement: str) -> None:
    loaded = loaded_by(statement)
    assert "medusakit" in loaded
    assert loaded.isdisjoint(HEAVY)


def test_help_is_fast() -> None:
    """Best of several, so that a busy machine does not decide; the interpreter's own start is part of it."""
    seconds = []
    for _ in range(7):
        started = time.perf_counter()
        subprocess.run([sys.executable, "-c", HELP], capture_output=True, check=True)
        seconds.append(time.perf_counter() - started)
    assert min(seconds) < HELP_LIMIT_S
