"""What a function's schema says of how the values of its parameters are written, where each stands by itself.

Formats with tags write a string as it is and everything else as JSON. Which of the two a value is must be certain
before it comes, so the schema alone tells it. A value that may be a string and more than that is JSON, too, its strings
quoted; only beside `null` a string is written as it is, for models write strings that may be null like all others.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any

ANNOTATIONS = frozenset(
    {"title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly", "$comment", "$schema", "$id"}
)
MAX_REFERENCES = 64  # of one value; what is behind more is not looked at, so that reading an answer stays cheap
DEFINITIONS = ("$defs", "definitions")
Schema = Mapping[str, Any]


class Written(Enum):
    JSON = "as JSON"
    TEXT = "as it is"
    TEXT_OR_NULL = "as it is, but `null` is no text"


def parameters_of(schema: Schema) -> dict[str, Any]:
    """The schemas of a function's parameters in their order: those with a name, then those that are only required."""
    named: dict[str, Any] = dict(schema.get("properties") or {})
    return named | {name: {} for name in schema.get("required") or () if name not in named}


def written_as(schema: Any, root: Schema) -> Written:
    """root: the schema that `$ref`s in `schema` mean."""
    found: set[str] = set()
    for one in alternatives(schema, root):
        types = types_of(one)
        if types is None:
            return Written.JSON
        found |= types
    if found == {"string"}:
        return Written.TEXT
    return Written.TEXT_OR_NULL if found == {"string", "null"} else Written.JSON


def alternatives(schema: Any, root: Schema) -> list[Any]:
    """The schemas of which a value follows one. A schema that is more than a choice or a reference stays whole."""
    found: list[Any] = []
    left, seen = [schema], set[str]()
    while left:
        one = left.pop()
        choices = _choices(one, root, seen)
        if choices is None:
            found.append(one)
        else:
            left += reversed(choices)
    return found


def strings_of(alternative: Schema) -> list[str] | None:
    """The only strings that it permits; None: any."""
    values = _values(alternative)
    return None if values is None else [value for value in values if isinstance(value, str)]


def types_of(schema: Any) -> set[str] | None:
    """`string`, `null` and others; None: any, or the schema is none."""
    if not isinstance(schema, Mapping) or not isinstance(schema.get("enum", []), list):
        return None
    names = schema.get("type", [])
    names = names if isinstance(names, list) else [names]
    if not all(isinstance(name, str) for name in names) or not names and "type" in schema:
        return None
    values = _values(schema)
    if values is None:
        return set(names) or None
    return {_type(value) for value in values if not names or _type(value) in {*names, "more"}}


def _values(schema: Schema) -> list[Any] | None:
    """The only ones that it names; None: it names none."""
    values: list[Any] | None = schema.get("enum")
    if "const" in schema:
        return [schema["const"]] if values is None or schema["const"] in values else []
    return values


def _choices(schema: Any, root: Schema, seen: set[str]) -> list[Any] | None:
    """None: there is none. seen: references that were followed; the same again permits nothing new."""
    said = schema.keys() - ANNOTATIONS if isinstance(schema, Mapping) else set()
    if len(said) != 1:
        return None
    (word,) = said
    given = schema[word]
    if word == "$ref" and isinstance(given, str) and (target := _target(given, root)) is not None:
        fresh = given not in seen
        if fresh and len(seen) == MAX_REFERENCES:
            return None
        seen.add(given)
        return [target] if fresh else []
    is_choice = word in ("anyOf", "oneOf") or (word == "allOf" and isinstance(given, list) and len(given) == 1)
    return given if is_choice and isinstance(given, list) and given else None


def _target(reference: str, root: Schema) -> Any:
    """None: it leads nowhere."""
    found: Any = root
    head, *names = reference.split("/")
    for name in names:
        found = found.get(name.replace("~1", "/").replace("~0", "~")) if isinstance(found, Mapping) else None
    return found if head == "#" and names else None


def _type(value: Any) -> str:
    """Of those that matter here."""
    return "string" if isinstance(value, str) else "null" if value is None else "more"
