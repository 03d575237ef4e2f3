"""Memory maps of weight files, kept from filling the process: used pages go back to the kernel's cache."""

from __future__ import annotations

import mmap
from pathlib import Path

from medusakit.errors import ModelError

_BUDGET_BYTES = 64 << 20


def map_file(path: Path) -> mmap.mmap:
    """The whole file, read-only. Raises ModelError where it cannot be read or is empty."""
    try:
        with path.open("rb") as file:
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except ValueError:
        raise ModelError(f"{path} is empty", hint="download the file again") from None
    except OSError as error:
        raise ModelError(f"cannot read {path}: {error.strerror or error}", hint=f"ls -l {path}") from error


class PageBudget:
    """Counts the bytes handed out of `data`; past the budget it drops the map's resident pages and starts over.

    Dropping is always safe for a read-only file map: a page still in use is simply read again, usually from the page
    cache. Without it, building a graph would hold the whole file resident beside the weights built from it.
    """

    def __init__(self, data: mmap.mmap, budget_bytes: int = _BUDGET_BYTES) -> None:
        self._data = data
        self._budget = budget_bytes
        self._since = 0

    def hand_out(self, num_bytes: int) -> None:
        """Call before a view of `num_bytes` is made."""
        if self._since and self._since + num_bytes > self._budget:
            self.drop()
        self._since += num_bytes

    def drop(self) -> None:
        """Release the resident pages now (where the system can)."""
        self._since = 0
        if hasattr(mmap, "MADV_DONTNEED"):
            self._data.madvise(mmap.MADV_DONTNEED)
