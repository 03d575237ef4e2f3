"""Large pages for the weights of a session that was just made.

A pass reads all weights once; with pages of 4 KiB, address translation takes a tenth of it (measured: 7 to 11 % of a
step in f32 and int4). ONNX Runtime allocates with `malloc`, so the memory that appeared while it loaded is collapsed
into large pages afterwards, by a thread in the background: it takes 0.6 s a gigabyte. Linux 6.1 or newer; elsewhere
nothing happens. Memory of the host application is left alone.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

Made = TypeVar("Made")
Range = tuple[int, int]

_MAPS = Path("/proc/self/maps")
_LARGE = 2 << 20
_WORTHWHILE = 4 << 20
_MADV_COLLAPSE = 25
_THREAD = "large-pages"


def with_large_pages(make: Callable[[], Made]) -> Made:
    """What `make` gives; the memory that it allocated and kept moves to large pages in the background."""
    before = anonymous_memory()
    made = make()
    ranges = list(added(before, anonymous_memory()))
    if ranges:
        threading.Thread(target=_collapse, args=(ranges,), name=_THREAD, daemon=True).start()
    return made


def settle() -> None:
    """Wait until no memory is on its way: it takes the bandwidth that a pass needs, so nothing is timed meanwhile."""
    for thread in threading.enumerate():
        if thread.name == _THREAD:
            thread.join()


def anonymous_memory() -> list[Range]:
    """Private writable memory without a file behind it, [start, end) in ascending order; empty where not Linux."""
    with suppress(OSError):
        return [found for line in _MAPS.read_text().splitlines() if (found := _anonymous(line))]
    return []


def _anonymous(line: str) -> Range | None:
    fields = line.split()  # range, permissions, offset, device, inode, name if any
    if fields[1] != "rw-p" or fields[4] != "0" or (len(fields) > 5 and fields[5] != "[heap]"):
        return None
    start, end = fields[0].split("-")
    return int(start, 16), int(end, 16)


def added(before: Iterable[Range], after: Iterable[Range]) -> Iterator[Range]:
    """Parts of `after` that are not in `before`, cut to whole large pages, if large enough to be worth it.

    >>> list(added([(0, 8 << 20)], [(0, 16 << 20), (64 << 20, 65 << 20)])) == [(8 << 20, 16 << 20)]
    True
    """
    known = list(before)
    for start, end in after:
        for low, high in _without(start, end, known):
            low, high = -(-low // _LARGE) * _LARGE, high // _LARGE * _LARGE
            if high - low >= _WORTHWHILE:
                yield low, high


def _without(start: int, end: int, known: list[Range]) -> Iterator[Range]:
    for low, high in known:
        if low < end and high > start:
            if low > start:
                yield start, low
            start = max(start, high)
    if start < end:
        yield start, end


def _collapse(ranges: list[Range]) -> None:
    """A range that the kernel refuses, or that is gone by now, stays as it is."""
    with suppress(AttributeError, OSError):
        advise = ctypes.CDLL(None).madvise
        advise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
        for start, end in ranges:
            advise(start, end - start, _MADV_COLLAPSE)
