"""A fresh environment with nothing but the wheel: small, without torch, and it answers."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MAX_BYTES = 400_000_000


def call(*command: object, cwd: Path = ROOT) -> str:
    done = subprocess.run([str(word) for word in command], cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
@pytest.mark.model
@pytest.mark.timeout(1200)
def test_the_wheel_alone_is_enough_to_run(tmp_path: Path) -> None:
    call(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", tmp_path, ".")
    (wheel,) = tmp_path.glob("medusakit-*.whl")
    venv = tmp_path / "venv"
    call(sys.executable, "-m", "venv", venv)
    call(venv / "bin" / "pip", "install", "--quiet", wheel)
    size = sum(file.lstat().st_size for file in venv.rglob("*") if file.is_file() and not file.is_symlink())
    assert size < MAX_BYTES
    packages = call(venv / "bin" / "pip", "list").lower()
    assert "torch" not in packages and "transformers" not in packages
    call(venv / "bin" / "medusa", "models", "pull", "smollm2")
    answer = call(venv / "bin" / "medusa", "run", "What is a heap?", "-n", "16", cwd=tmp_path)
    assert len(answer.split()) > 5
    call(venv / "bin" / "medusa-env-checker", cwd=tmp_path)
