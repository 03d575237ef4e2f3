"""Where medusakit keeps what it downloads and builds: MEDUSA_HOME, or ~/.cache/medusakit."""

from __future__ import annotations

import os
import shutil
from pathlib import Path


def home() -> Path:
    """The cache folder; it need not exist yet."""
    configured = os.environ.get("MEDUSA_HOME")
    return Path(configured).expanduser() if configured else Path.home() / ".cache" / "medusakit"


def sweep(parent: Path, prefix: str) -> None:
    """Remove scratch folders, called <prefix><pid>-..., of processes that were killed before they could."""
    for folder in parent.glob(f"{prefix}*"):
        pid = folder.name.removeprefix(prefix).split("-")[0]
        if pid.isdigit() and not _alive(int(pid)):
            shutil.rmtree(folder, ignore_errors=True)


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        return True
    return True
