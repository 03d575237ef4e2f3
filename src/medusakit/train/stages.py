"""Markers of finished stages: what went in, what came out. A stage runs again only if what goes in has changed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from medusakit.artifact.files import make_folder, write_atomic
from medusakit.errors import DatasetError
from medusakit.train.progress import OnProgress, Progress

Values = dict[str, Any]


class StageBook:
    """One marker file per finished stage in a work folder."""

    def __init__(self, folder: Path, on_progress: OnProgress) -> None:
        self._folder = folder
        self._on_progress = on_progress

    def run(self, stage: str, inputs: Mapping[str, Any], outputs: list[Path], work: Callable[[], Values]) -> Values:
        """The stage's result: from its marker if inputs are equal and outputs exist, else by doing the work.

        Says on the way when a finished stage is skipped, and what changed when it is made again.
        """
        wanted: Values = json.loads(json.dumps(inputs))
        marker = self._read(stage)
        if marker is not None and marker["inputs"] == wanted and all(path.exists() for path in outputs):
            self.say(stage, f"already done{_what(marker['result'])}")
            return dict(marker["result"])
        if marker is not None:
            self.say(stage, f"made again: {changes(marker['inputs'], wanted) or 'its files are gone'}")
            self._file(stage).unlink()
        result = work()
        self._write(stage, wanted, result)
        return result

    def result(self, stage: str) -> Values:
        """Of a stage that must be finished. Raises DatasetError naming the command that finishes it."""
        marker = self._read(stage)
        if marker is None:
            name = stage.partition("-")[0]
            hint = f"medusa train {name} --work {self._folder}"
            raise DatasetError(f"the stage {name} is not finished in {self._folder}", hint=hint)
        return dict(marker["result"])

    def say(self, stage: str, note: str) -> None:
        self._on_progress(Progress(stage.replace("-", " "), 0, 0, unit="", note=note, finished=True))

    def _file(self, stage: str) -> Path:
        return self._folder / f"{stage}.done.json"

    def _read(self, stage: str) -> Values | None:
        try:
            marker = json.loads(self._file(stage).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        return marker if isinstance(marker, dict) and {"inputs", "result"} <= marker.keys() else None

    def _write(self, stage: str, inputs: Values, result: Values) -> None:
        make_folder(self._folder)
        write_atomic(self._file(stage), json.dumps({"inputs": inputs, "result": result}, indent=1).encode())


def digest(value: Any) -> str:
    """Short sha256 of JSON-like values, for markers."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]


def changes(old: Any, new: Any, where: str = "") -> str:
    """What differs, e.g. `learning_rate 0.002 -> 0.001`."""
    if isinstance(old, dict) and isinstance(new, dict):
        names = sorted(old.keys() | new.keys())
        found = (changes(old.get(name), new.get(name), f"{where}.{name}".lstrip(".")) for name in names)
        return ", ".join(part for part in found if part)
    return "" if old == new else f"{where} {_short(old)} -> {_short(new)}"


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 40 else text[:37] + "..."


def _what(result: Mapping[str, Any]) -> str:
    return f" ({result['summary']})" if result.get("summary") else ""
