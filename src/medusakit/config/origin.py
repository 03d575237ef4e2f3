"""Where a value came from, and messages that name a setting by it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Literal

from medusakit.config.key import KEYS, Key

Source = Literal["flag", "env", "file", "artifact", "default"]


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a value came from. where: the flag, the variable or the file."""

    source: Source
    where: str = ""


def named_by_origin(text: str, origins: Mapping[str, Origin]) -> str:
    """A message that speaks of flags, with the variable or the line of a file where that is where the value is.

    Commands in it are left alone: what they say with a flag overrides the others.
    >>> named_by_origin("--tree 9x9 is 9 deep", {"tree": Origin("env", "MEDUSA_TREE")})
    'MEDUSA_TREE=9x9 is 9 deep'
    """
    message, command, rest = text.partition("medusa ")
    for name, origin in origins.items():
        if origin.source in ("env", "file"):
            flag = re.compile(rf"{KEYS[name].flag}(?![\w-])(?: (?P<value>[\w.]+)(?=\s|$|,|;))?")
            message = flag.sub(partial(_in_place, KEYS[name], origin), message)
    return message + command + rest


def _in_place(key: Key, origin: Origin, found: re.Match[str]) -> str:
    value = found["value"]
    if origin.source == "env":
        return key.env if value is None else f"{key.env}={value}"
    return f"{key.name if value is None else key.line(value)} in {origin.where}"
