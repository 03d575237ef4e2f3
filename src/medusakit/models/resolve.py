"""From a name on the command line to model files on this disk."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from medusakit.errors import ModelError
from medusakit.models.spec import WeightSource


@dataclass(frozen=True, slots=True)
class ResolvedModel:
    """Where a model lies. `path` is a .gguf file or a Hugging Face folder; `alias`, `revision` say how it was found."""

    name: str
    path: Path
    kind: Literal["gguf", "hf"]
    alias: str | None = None
    revision: str | None = None


def resolve(name: str, *, offline: bool = False) -> ResolvedModel:
    path = Path(name).expanduser()
    if path.is_file():
        return ResolvedModel(name, path, "gguf")
    if (path / "config.json").is_file():
        return ResolvedModel(name, path, "hf")
    raise ModelError(f"no model {name!r}")


def open_weights(resolved: ResolvedModel) -> WeightSource:
    """Open the files. Raises ModelError where they are not a whole, supported model."""
    from medusakit.models.gguf import GgufSource
    from medusakit.models.hf import HfSource

    if resolved.kind == "hf":
        return HfSource(resolved.path)
    return GgufSource(resolved.path)
