"""A record of the times when drafting did not pay, for tuning later: numbers only, no text, at most a megabyte."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

from medusakit.artifact.files import write_atomic
from medusakit.engine.guard import Round
from medusakit.errors import MedusaError
from medusakit.models.home import home

MAX_BYTES = 1 << 20


def deviations_file() -> Path:
    return home() / "deviations.jsonl"


def record_trip(found: Round) -> None:
    """Append a round at which the breaker tripped. Decoding goes on whether or not it could be written."""
    line = json.dumps({"time": datetime.now(UTC).isoformat(timespec="seconds"), **asdict(found)}) + "\n"
    with suppress(OSError, MedusaError):
        append_bounded(deviations_file(), line.encode(), MAX_BYTES)


def append_bounded(path: Path, line: bytes, max_bytes: int) -> None:
    """Append a line; when the file would pass `max_bytes`, its older half goes first."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.exists() and path.stat().st_size + len(line) > max_bytes:
        kept = path.read_bytes()[-max_bytes // 2 :]
        write_atomic(path, kept[kept.find(b"\n") + 1 :])
    with path.open("ab") as file:
        file.write(line)
