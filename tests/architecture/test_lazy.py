"""What may not be loaded by `import medusakit` and `medusa --help`, and how fast the help is."""

from __future__ import annotations

import resource
import subprocess
import sys

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
    """Processor seconds of the whole process, interpreter included: what it takes where nothing else runs. The best of
    several, since a busy machine only ever adds."""
    seconds = []
    for _ in range(5):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-c", HELP], capture_output=True, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    assert min(seconds) < HELP_LIMIT_S
