"""Rules of a grammar for the arguments of functions: a JSON object, or parameters between tags."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from medusakit.text.call_formats import Tags
from medusakit.text.call_values import (
    ANNOTATIONS,
    DEFINITIONS,
    Schema,
    Written,
    alternatives,
    parameters_of,
    strings_of,
    types_of,
    written_as,
)
from medusakit.verify.compiling import LAYOUT
from medusakit.verify.grammar import MAX_SCHEMA_BYTES, cannot, written
from medusakit.verify.lark import pattern, quoted

NO_ARGUMENTS: Mapping[str, Any] = {"type": "object", "properties": {}, "additionalProperties": False}
_MORE_PROPERTIES = frozenset({"allOf", "anyOf", "oneOf", "$ref", "patternProperties", "if", "dependentSchemas"})
_FOLLOWED = ANNOTATIONS | {"type", "properties", "required", "additionalProperties", *DEFINITIONS}
_FOLLOWED_OF_TEXT = ANNOTATIONS | {"type", "enum", "const", "minLength", "maxLength"}

Spell = Callable[[str], str]  # a text as terms: control tokens, and what is between them


@dataclass(frozen=True, slots=True)
class Function:
    """parameters: JSON schema of the arguments, an object's. strict: refuse what of it cannot be followed; else such
    keywords are left out."""

    name: str
    parameters: Mapping[str, Any] = field(default_factory=lambda: NO_ARGUMENTS)
    strict: bool = False


def argument_rules(name: str, function: Function, tags: Tags | None, spell: Spell = quoted) -> dict[str, str]:
    """By name, the first being `name`. Raises FormError for a schema that cannot be followed."""
    if tags is None:
        return {name: _object(function)}
    return _Tagged(name, function, tags, spell).rules()


def document(schema: Mapping[str, Any], *, lenient: bool = False) -> str:
    """lenient: keywords that are not known are left out."""
    return "%json " + written({**schema, "x-guidance": {**LAYOUT, "lenient": lenient}})


def _object(function: Function) -> str:
    """Where the schema names its properties and says nothing of others, there are no others; but some require one that
    they do not name."""
    schema = function.parameters
    closed = "properties" in schema and not _MORE_PROPERTIES & schema.keys() and not _requires_others(schema)
    return document({"additionalProperties": False, **schema} if closed else schema, lenient=not function.strict)


def _requires_others(schema: Mapping[str, Any]) -> bool:
    named, required = schema["properties"], schema.get("required")
    if not isinstance(named, Mapping) or not isinstance(required, list):
        return False
    return any(isinstance(name, str) and name not in named for name in required)


class _Tagged:
    """Parameters in the order of the schema, those that are not required as they may be."""

    def __init__(self, name: str, function: Function, tags: Tags, spell: Spell) -> None:
        self._name, self._function, self._tags, self._spell = name, function, tags, spell
        self._schema: Schema = function.parameters
        self._rules: dict[str, str] = {name: ""}
        self._is_text = spell(tags.closes) == quoted(tags.closes)

    def rules(self) -> dict[str, str]:
        written(self._schema)
        self._check()
        required = self._schema.get("required", [])
        order = []
        for place, (key, schema) in enumerate(parameters_of(self._schema).items()):
            rule = f"{self._name}_{place}"
            self._parameter(rule, key, schema)
            order.append(rule if key in required else f"{rule}?")
        self._rules[self._name] = " ".join(order) or quoted("")
        if sum(map(len, self._rules.values())) > 4 * MAX_SCHEMA_BYTES:
            raise cannot("its definitions are too large for so many parameters")
        return self._rules

    def _check(self) -> None:
        """What llguidance checks where it is given the schema whole."""
        named, required = self._schema.get("properties", {}), self._schema.get("required", [])
        if not isinstance(named, Mapping):
            raise cannot("properties is not an object")
        if not isinstance(required, list) or not all(isinstance(name, str) for name in required):
            raise cannot("required is not a list of names")
        if "properties" not in self._schema and _MORE_PROPERTIES & self._schema.keys():
            raise cannot("parameters are written one by one, so properties has to name them")
        self._left_out(self._schema, _FOLLOWED)
        if self._function.strict and self._schema.get("additionalProperties") not in (None, False):
            raise cannot("parameters are written one by one, so additionalProperties has to be false")

    def _left_out(self, schema: Schema, followed: frozenset[str]) -> None:
        if self._function.strict and (unknown := sorted(schema.keys() - followed)):
            raise cannot(f"{unknown[0]!r} is not supported where parameters stand between tags")

    def _parameter(self, rule: str, key: str, schema: Any) -> None:
        tags = self._tags
        if _ends_early(key, tags.middle):
            raise cannot(f"the parameter {key[:64]!r} has in its name what ends names: {tags.middle!r}")
        if written_as(schema, self._schema) is Written.JSON:
            self._rules[f"{rule}_json"] = self._json(schema)
            value = f"{rule}_json {self._spell(tags.pad + tags.closes)}"
        else:
            value = " | ".join(self._texts(schema))
            if not value:
                raise cannot(f"there is no value of the parameter {key[:64]!r}")
        head = f"{self._spell(tags.opens)} {quoted(key)} {self._spell(tags.middle)}"
        self._rules[rule] = f"{head} ({value}) {self._spell(tags.after)}"

    def _json(self, schema: Any) -> str:
        if schema is True:
            schema = {}
        if not isinstance(schema, Mapping):
            raise cannot(f"{str(schema)[:64]!r} is no schema of a parameter")
        definitions = {name: self._schema[name] for name in DEFINITIONS if name in self._schema}
        whole = {**schema, **definitions} if "$ref" in written(schema) else schema
        return document(whole, lenient=not self._function.strict)

    def _texts(self, schema: Any) -> Iterator[str]:
        """Values with their closing tags."""
        for one in alternatives(schema, self._schema):
            types = types_of(one) or set()
            if "null" in types:
                yield self._literal("null")
            if "string" in types:
                self._left_out(one, _FOLLOWED_OF_TEXT)
                least, most = (self._limit(one, name) for name in ("minLength", "maxLength"))
                only = strings_of(one)
                if only is None:
                    yield self._free(least, most)
                for text in only or ():
                    if (least or 0) <= len(text) and (most is None or len(text) <= most):
                        yield self._literal(text)

    def _literal(self, text: str) -> str:
        tags = self._tags
        if _ends_early(text + tags.pad, tags.closes):
            raise cannot(f"the value {text[:64]!r} has in it what ends values: {tags.closes!r}")
        if self._is_text:
            return quoted(text + tags.pad + tags.closes)
        return f"{quoted(text + tags.pad)} {self._spell(tags.closes)}"

    def _free(self, least: int | None, most: int | None) -> str:
        """Any text; without limits of its length, what is before the closing tag may be missing."""
        if least is not None and most is not None and least > most:
            raise cannot(f"minLength is {least}, more than maxLength, which is {most}")
        tags, closes = self._tags, pattern(self._tags.closes)
        limited = least is not None or most is not None
        many = f"{{{least or 0},{'' if most is None else most}}}" if limited else "*"
        text = f"(?s:.{many})" + (pattern(tags.pad) if limited else "")
        rule = f"text_{least or 0}_{'' if most is None else most}" if limited else "text"
        if self._is_text:
            self._rules[f"{rule}[lazy]"] = f"/{text}{closes}/ & ~/(?s:.*){closes}(?s:.+)/"
            return rule
        self._rules[rule.upper()] = f"/{text}/ & ~/(?s:.*){closes}(?s:.*)/"
        return f"{rule.upper()} {self._spell(tags.closes)}"

    @staticmethod
    def _limit(schema: Schema, name: str) -> int | None:
        found = schema.get(name)
        if found is not None and (type(found) is not int or found < 0):
            raise cannot(f"{name} is {str(found)[:64]}, which is no length")
        return found


def _ends_early(text: str, mark: str) -> bool:
    """The mark after the text would be found before its place."""
    return (text + mark).index(mark) < len(text)
