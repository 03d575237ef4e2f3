"""Requests out of a log: how long prompts and answers were, and when they came.

JSON lines, one request each, in any of these forms (other keys are ignored):

    {"prompt_tokens": 120, "output_tokens": 48}                                   the simplest
    {"timestamp": 1790000000.5, "duration_s": 1.2, "prompt_tokens": ...}          with arrival and duration
    {"created": 1790000000, "usage": {"prompt_tokens": 120, "completion_tokens": 48}}    an OpenAI-style answer
    {"stats": {"num_prompt_tokens": 120, "num_tokens": 48, ...}, ...}             what `medusa run --json` writes

A timestamp is a number of seconds since 1970 or an ISO 8601 text. A file may also be one JSON object or a list.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from medusakit.errors import UsageError

PROMPT_KEYS = ("prompt_tokens", "input_tokens", "num_prompt_tokens")
OUTPUT_KEYS = ("output_tokens", "completion_tokens", "generation_tokens", "num_tokens")
TIME_KEYS = ("timestamp", "created")
FORM = '{"prompt_tokens": 120, "output_tokens": 48, "timestamp": 1790000000.5}'


@dataclass(frozen=True, slots=True)
class Request:
    """start_s: when it arrived, in seconds of any one clock. duration_s: until its last token."""

    prompt_tokens: int
    output_tokens: int
    start_s: float | None = None
    duration_s: float | None = None


def read_requests(path: Path) -> list[Request]:
    """All requests of a log. Raises UsageError with file and line of what is wrong, or where there is none at all."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} cannot be read: {error}", hint=f"one request a line: {FORM}") from None
    requests = [_request(entry, where) for entry, where in _entries(text, str(path))]
    if not requests:
        raise UsageError(f"{path} has no requests", hint=f"one request a line: {FORM}")
    return requests


def _entries(text: str, path: str) -> Iterator[tuple[Any, str]]:
    """Every entry with its place. A text that is one JSON value over several lines is taken as that value."""
    lines = [(number, line) for number, line in enumerate(text.splitlines(), start=1) if line.strip()]
    whole = _whole(text) if len(lines) > 1 else None
    if isinstance(whole, list):
        yield from ((entry, f"{path}, entry {place}") for place, entry in enumerate(whole, start=1))
        return
    if whole is not None:
        yield whole, path
        return
    for number, line in lines:
        where = f"{path}, line {number}"
        try:
            yield json.loads(line), where
        except json.JSONDecodeError as error:
            raise UsageError(f"{where} is not JSON: {error}", hint=f"one request a line: {FORM}") from None


def _whole(text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return None


def _request(entry: Any, where: str) -> Request:
    if not isinstance(entry, Mapping):
        raise UsageError(f"{where} holds a {type(entry).__name__}, expected an object", hint=FORM)
    counts = next((entry[key] for key in ("usage", "stats") if isinstance(entry.get(key), Mapping)), entry)
    return Request(
        _count(counts, PROMPT_KEYS, where, low=0),
        _count(counts, OUTPUT_KEYS, where, low=0),
        _start(entry, where),
        _duration(entry, counts, where),
    )


def _count(entry: Mapping[str, Any], keys: tuple[str, ...], where: str, *, low: int) -> int:
    key = next((key for key in keys if key in entry), None)
    if key is None:
        raise UsageError(f"{where} has no {keys[0]} (nor {', '.join(keys[1:])})", hint=FORM)
    value = entry[key]
    if isinstance(value, bool) or not isinstance(value, int) or value < low:
        raise UsageError(f"{where}: {key} is {value!r}, expected a whole number from {low} up", hint=FORM)
    return value


def _start(entry: Mapping[str, Any], where: str) -> float | None:
    key = next((key for key in TIME_KEYS if entry.get(key) is not None), None)
    if key is None:
        return None
    value = entry[key]
    if isinstance(value, str):
        try:
            return datetime.fromisoformat(value).timestamp()
        except ValueError:
            pass
    elif _is_number(value):
        return float(value)
    raise UsageError(f"{where}: {key} is {value!r}, expected seconds or a date like 2026-01-31T12:00:00Z", hint=FORM)


def _duration(entry: Mapping[str, Any], counts: Mapping[str, Any], where: str) -> float | None:
    if entry.get("duration_s") is None:
        parts = [counts.get(key) for key in ("prefill_s", "decode_s")]
        return sum(parts) if all(map(_is_number, parts)) else None  # type: ignore[arg-type]
    value = entry["duration_s"]
    if not _is_number(value) or value < 0:
        raise UsageError(f"{where}: duration_s is {value!r}, expected seconds from 0 up", hint=FORM)
    return float(value)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
