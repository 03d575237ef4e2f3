"""The prompt of a command: the argument, what is piped in, or both (argument first)."""

from __future__ import annotations

import os
import stat
import sys
from typing import TextIO

from medusakit.errors import UsageError


def read_prompt(argument: str | None, stdin: TextIO | None = None, *, command: str = "run") -> str:
    """Argument and piped text, a blank line between them; `-` as argument means the piped text. Raises UsageError.

    command  whose prompt it is, for the hint
    """
    stream = sys.stdin if stdin is None else stdin
    piped = stream.read() if stream is not None and _is_piped(stream) else ""
    parts = [part for part in ("" if argument == "-" else argument or "", piped.strip()) if part.strip()]
    if not parts:
        raise UsageError("the prompt is empty", hint=f'medusa {command} "Explain a B-tree in two sentences"')
    return "\n\n".join(parts)


def _is_piped(stream: TextIO) -> bool:
    """True for a pipe, a file, or a stream without a descriptor (tests); not for a terminal or a device."""
    if stream.isatty():
        return False
    try:
        mode = os.fstat(stream.fileno()).st_mode
    except OSError:
        return True
    return stat.S_ISFIFO(mode) or stat.S_ISREG(mode)
