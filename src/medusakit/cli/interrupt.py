"""Ctrl-C that never lands inside the loading of a module.

A C extension that is interrupted while it initialises turns KeyboardInterrupt into an ImportError of its own, or prints
a traceback, and one that lands in Python's import machinery is sometimes only reported and then lost. Loading modules
is most of a short command, so this is where Ctrl-C often comes. It is held back there and delivered a moment later.
"""

from __future__ import annotations

import _thread
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.machinery import ExtensionFileLoader
from types import FrameType

_AGAIN_S = 0.02
_EXTENSION_LOADS = frozenset(
    method.__code__ for method in (ExtensionFileLoader.create_module, ExtensionFileLoader.exec_module)
)


@contextmanager
def interrupt_between_loads() -> Iterator[None]:
    """Ctrl-C raises KeyboardInterrupt, but not inside the loading of a module. Nothing changes where it is ignored."""
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    try:
        signal.signal(signal.SIGINT, _raise_or_wait)
    except ValueError:  # not the main thread: Python delivers signals to that one alone
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _raise_or_wait(number: int, frame: FrameType | None) -> None:
    if not _is_loading(frame):
        raise KeyboardInterrupt
    _thread.start_new_thread(_interrupt_again, (_thread.get_ident(),))


def _interrupt_again(main_thread: int) -> None:
    time.sleep(_AGAIN_S)
    if sys.platform == "win32":
        _thread.interrupt_main()
    else:
        signal.pthread_kill(main_thread, signal.SIGINT)  # also ends a wait that the main thread may be in by now


def _is_loading(frame: FrameType | None) -> bool:
    """The innermost frame is the import machinery's own, or some frame initialises a C extension."""
    if frame is not None and frame.f_code.co_filename.startswith("<frozen importlib"):
        return True
    while frame is not None:
        if frame.f_code in _EXTENSION_LOADS:
            return True
        frame = frame.f_back
    return False
