"""Texts in llguidance's dialect of Lark."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

_SPECIAL = re.compile(r"[\\.+*?()|\[\]{}^$/#&~-]")  # not all punctuation: `\<` is the beginning of a word


def quoted(text: str) -> str:
    """A text as itself."""
    return json.dumps(text)


def pattern(text: str) -> str:
    """A text inside a regular expression."""
    return _SPECIAL.sub(r"\\\g<0>", text)


def ranges(ids: Sequence[int]) -> str:
    """
    >>> ranges([1, 2, 3, 7])
    '1-3,7'
    """
    runs: list[list[int]] = []
    for one in ids:
        if runs and runs[-1][1] == one - 1:
            runs[-1][1] = one
        else:
            runs.append([one, one])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)
