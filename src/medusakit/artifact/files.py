"""Files that are either complete or absent: write aside, flush to disk, rename."""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from medusakit.errors import MedusaError, RuntimeFailure

_BLOCK = 1 << 20


def sha256_file(path: Path) -> str:
    """sha256 hex of a file's content, read in blocks."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            digest.update(block)
    return digest.hexdigest()


def disk_error(path: Path, cause: OSError) -> MedusaError:
    """What a person can do about an OSError met while writing `path`."""
    if cause.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        free = shutil.disk_usage(_existing_parent(path)).free / 1e6
        return RuntimeFailure(
            f"no space left while writing {path} ({free:.0f} MB free there)",
            hint="free some space and run the same command again: finished work is kept",
        )
    if cause.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return RuntimeFailure(
            f"cannot write {path}: {os.strerror(cause.errno)}", hint="choose a folder that you may write to"
        )
    return RuntimeFailure(f"cannot write {path}: {cause}", hint="another folder or disk")


def _existing_parent(path: Path) -> Path:
    return next(folder for folder in (path, *path.absolute().parents) if folder.exists())


def make_folder(path: Path) -> Path:
    """The folder, made with its parents. Raises RuntimeFailure where that is not possible."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as cause:
        raise disk_error(path, cause) from cause
    return path


def write_atomic(path: Path, data: bytes) -> None:
    """Replace `path` by `data`, or leave it as it was. Raises RuntimeFailure (full disk, no permission)."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        _write_synced(temporary, data)
        os.replace(temporary, path)
    except OSError as cause:
        raise disk_error(path, cause) from cause
    finally:
        temporary.unlink(missing_ok=True)


def _write_synced(path: Path, data: bytes) -> None:
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


@contextmanager
def atomic_folder(target: Path) -> Iterator[Path]:
    """A temporary folder beside `target` that takes its place when the block ends without an error.

    On any error (Ctrl-C included) the temporary folder is removed and `target` stays as it was.
    """
    make_folder(target.parent)
    try:
        temporary = Path(tempfile.mkdtemp(prefix=f".{target.name}.", suffix=".tmp", dir=target.parent))
        temporary.chmod(0o755)
    except OSError as cause:
        raise disk_error(target, cause) from cause
    try:
        yield temporary
        _swap_in(temporary, target)
    except OSError as cause:
        raise disk_error(target, cause) from cause
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _swap_in(temporary: Path, target: Path) -> None:
    """A folder cannot be renamed onto a full one, so the old one steps aside first and comes back if that fails."""
    aside = temporary.with_suffix(".old")
    if target.exists():
        target.rename(aside)
    try:
        temporary.rename(target)
    except OSError:
        if aside.exists():
            aside.rename(target)
        raise
    shutil.rmtree(aside, ignore_errors=True)
