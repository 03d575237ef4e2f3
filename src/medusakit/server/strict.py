"""The base of all that requests may hold: a field that is not known and would change the output is refused by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from medusakit.config import nearest


class Wire(BaseModel):
    """ignored: fields that are taken and dropped. neutral: values of unsupported fields that ask for nothing."""

    model_config = ConfigDict(extra="forbid", strict=True)
    ignored: ClassVar[frozenset[str]] = frozenset()
    neutral: ClassVar[Mapping[str, tuple[Any, ...]]] = {}

    @model_validator(mode="before")
    @classmethod
    def _only_known(cls, given: Any) -> Any:
        if not isinstance(given, dict):
            return given
        known, names = {}, {field.alias or name for name, field in cls.model_fields.items()}
        for name, value in given.items():
            if name in names:
                known[name] = value
            elif value is not None and name not in cls.ignored and value not in cls.neutral.get(name, ()):
                told = name[:MAX_NAME]
                raise PydanticCustomError("unsupported_parameter", "{text}", {"name": told, "text": cls._refusal(told)})
        return known

    @classmethod
    def _refusal(cls, name: str) -> str:
        close = nearest(name, cls.model_fields)
        return f"{name!r} is not supported" + (f"; did you mean {close!r}?" if close else "")


MAX_NAME = 64  # characters of a field that is not known which are repeated
FIRST = Field(fail_fast=True)  # of a list: its first fault is told, for a body may hold a million of them


def has_surrogate(value: Any) -> bool:
    """Half of a UTF-16 pair, somewhere: JSON can spell it, but it is no text."""
    left = [value]  # not by recursion: a body may be nested deeper than Python's stack
    while left:
        one = left.pop()
        if isinstance(one, str):
            if not one.isascii() and any("\ud800" <= char <= "\udfff" for char in one):
                return True
        elif isinstance(one, dict):
            left += [*one.keys(), *one.values()]
        elif isinstance(one, list):
            left += [item for item in one if not isinstance(item, int)]
    return False
