"""From a name on the command line to model files on this disk.

Tried in this order: alias, existing path, name of a .gguf file, hub id in the local cache, hub. The error names every
step.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from medusakit.errors import GIVE_A_MODEL, OTHER_MODEL, ModelError
from medusakit.models.aliases import ALIASES
from medusakit.models.hub import HubId, fetch, find_cached, hub_is_offline, parse_hub_id
from medusakit.models.spec import WeightSource
from medusakit.models.store import OnProgress, model_path, pull, show

if TYPE_CHECKING:
    from medusakit.models.gguf_file import Value


@dataclass(frozen=True, slots=True)
class ResolvedModel:
    """Where a model lies. `path` is a .gguf file or a Hugging Face folder; `alias`, `revision` say how it was found."""

    name: str
    path: Path
    kind: Literal["gguf", "hf"]
    alias: str | None = None
    revision: str | None = None

    def metadata(self) -> Mapping[str, Value]:
        """The key-value pairs of a .gguf file, for text/, which lies below models/ and opens no containers."""
        from medusakit.models.gguf_file import GgufFile

        return GgufFile(self.path).metadata


def resolve(name: str, *, offline: bool = False, on_progress: OnProgress | None = None) -> ResolvedModel:
    """Find a model; fetch it where it is missing and `offline` is False (`on_progress`: of an alias's download).

    Raises ModelError naming each step that was tried.
    """
    if name in ALIASES:
        installed = offline or show(name).installed
        path = model_path(name) if installed else pull(name, on_progress).path
        return ResolvedModel(name, path, "gguf", alias=name)
    path = Path(name).expanduser()
    if name.strip() and _exists(path):
        return _from_path(name, path)
    hub_id = None if name.endswith(".gguf") else parse_hub_id(name)
    if hub_id is None:
        raise _not_found(name, [])
    return _from_hub(name, hub_id, offline=offline or hub_is_offline())


def open_weights(resolved: ResolvedModel) -> WeightSource:
    """Open the files. Raises ModelError where they are not a whole, supported model."""
    from medusakit.models.gguf import GgufSource
    from medusakit.models.hf import HfSource

    return HfSource(resolved.path) if resolved.kind == "hf" else GgufSource(resolved.path)


def _exists(path: Path) -> bool:
    """False also for names that no file can have."""
    try:
        return path.exists()
    except (OSError, ValueError):  # longer than the system allows; a NUL in it
        return False


def _from_path(name: str, path: Path) -> ResolvedModel:
    if path.is_file():
        return ResolvedModel(name, path, "gguf")  # whatever its name: the reader checks the magic
    if not path.is_dir():
        raise ModelError(f"{path} is neither a file nor a folder, so it holds no model", hint=GIVE_A_MODEL)
    if (path / "config.json").is_file():
        return ResolvedModel(name, path, "hf")
    files = sorted(path.glob("*.gguf"))
    if len(files) == 1:
        return ResolvedModel(name, files[0], "gguf")
    if files:
        raise ModelError(
            f"the folder {path} holds {len(files)} GGUF files: {', '.join(file.name for file in files)}",
            hint=f"-m {files[0]}",
        )
    raise ModelError(
        f"the folder {path} holds neither config.json (a Hugging Face model) nor a .gguf file",
        hint=OTHER_MODEL,
    )


def _from_hub(name: str, hub_id: HubId, *, offline: bool) -> ResolvedModel:
    path = find_cached(hub_id)
    if path is None:
        if offline:
            raise _not_found(name, ["hub cache: not there, or not whole", "hub: not asked, offline"])
        try:
            path = fetch(hub_id)
        except ModelError as error:
            raise _not_found(name, ["hub cache: not there", f"hub: {error.message}"], error.hint) from error
    kind: Literal["gguf", "hf"] = "hf" if path.is_dir() else "gguf"
    return ResolvedModel(name, path, kind, revision=_revision(path, kind))


def _revision(path: Path, kind: str) -> str:
    """The commit: the hub's cache keeps snapshots/<commit>/<files>."""
    parts = path.parts
    return parts[parts.index("snapshots") + 1] if "snapshots" in parts else ""


def _not_found(name: str, hub_steps: list[str], hint: str | None = None) -> ModelError:
    if not hub_steps and _names_a_file(name):
        near = _neighbours(name)
        close = difflib.get_close_matches(name, near, n=1) or near[:1]
        hint = f"-m {close[0]}" if close else GIVE_A_MODEL
        return ModelError(f"no model {name!r} was found: there is no file {Path(name).expanduser()}", hint=hint)
    steps = [f"alias: not one of {', '.join(ALIASES)}", f"path: {Path(name).expanduser()} does not exist", *hub_steps]
    if not hub_steps:
        steps.append("hub id: not of the form org/name[@revision][:quant]")
    close = difflib.get_close_matches(name, [*ALIASES, *_neighbours(name)], n=1)
    listing = "".join(f"\n  {step}" for step in steps)
    return ModelError(f"no model {name!r} was found:{listing}", hint=hint or f"-m {close[0] if close else 'smollm2'}")


def _names_a_file(name: str) -> bool:
    return name.endswith(".gguf") or name.startswith(("/", "./", "../", "~"))


def _neighbours(name: str) -> list[str]:
    """GGUF files beside a path that does not exist: likely what was meant."""
    parent = Path(name).expanduser().parent
    return sorted(str(file) for file in parent.glob("*.gguf")) if _exists(parent) and parent.is_dir() else []
