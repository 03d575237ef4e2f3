"""Ctrl-C at a place of our choosing: the first one lets the step in progress end, the second one stops at once."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def deferred_interrupt(*, raised_at_end: bool = True) -> Iterator[Callable[[], bool]]:
    """Yields a function that says whether Ctrl-C was pressed. The caller saves and raises KeyboardInterrupt.

    raised_at_end  for whoever saves: one that the block did not act on is raised when it ends, so that none is lost
    Outside the main thread nothing is installed (Python delivers signals to the main thread alone).
    """
    if threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return
    pressed = False

    def note(number: int, frame: FrameType | None) -> None:
        nonlocal pressed
        if pressed:
            raise KeyboardInterrupt
        pressed = True

    before = signal.signal(signal.SIGINT, note)
    try:
        yield lambda: pressed
    finally:
        signal.signal(signal.SIGINT, before)
    if pressed and raised_at_end:
        raise KeyboardInterrupt
