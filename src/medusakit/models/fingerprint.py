"""SHA-256 of weight files, remembered in MEDUSA_HOME by path, size and modification time."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from medusakit.errors import ModelError
from medusakit.models.home import home

_CHUNK = 1 << 20
_MEMORY = "fingerprints.json"
_MAX_REMEMBERED = 256
_DIGEST = re.compile("[0-9a-f]{64}")


def sha256_file(path: Path, on_bytes: Callable[[int], None] | None = None) -> str:
    """Hex digest of one file's content. `on_bytes` gets the size of each piece read."""
    digest = hashlib.sha256()
    try:
        with path.open("rb") as file:
            while piece := file.read(_CHUNK):
                digest.update(piece)
                if on_bytes is not None:
                    on_bytes(len(piece))
    except OSError as error:
        raise ModelError(f"cannot read {path}: {error.strerror or error}", hint=f"ls -l {path}") from error
    return digest.hexdigest()


def fingerprint_files(paths: Sequence[Path]) -> str:
    """One string for a model's weights: the file's SHA-256, or that of the files' digests in order of name."""
    digests = [_remembered(path) for path in sorted(paths, key=lambda path: path.name)]
    if len(digests) == 1:
        return digests[0]
    return hashlib.sha256("\n".join(digests).encode()).hexdigest()


def _remembered(path: Path) -> str:
    """The digest, computed once while path, size and time stay the same. A cache that cannot be written is no error."""
    try:
        stat = path.stat()
    except OSError as error:
        raise ModelError(f"cannot read {path}: {error.strerror or error}", hint=f"ls -l {path}") from error
    key = f"{path.resolve()}|{stat.st_size}|{stat.st_mtime_ns}"
    memory_path = home() / _MEMORY
    memory = _load(memory_path)
    if key not in memory:
        memory[key] = sha256_file(path)
        _save(memory_path, memory)
    return memory[key]


def _load(path: Path) -> dict[str, str]:
    try:
        data = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    entries = data.items() if isinstance(data, dict) else ()
    return {key: value for key, value in entries if isinstance(value, str) and _DIGEST.fullmatch(value)}


def _save(path: Path, memory: dict[str, str]) -> None:
    newest = dict(list(memory.items())[-_MAX_REMEMBERED:])
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            temporary.write_text(json.dumps(newest, indent=0))
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)
