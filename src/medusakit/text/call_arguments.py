"""The arguments of a call, read as they come and told as JSON text, whichever way the model writes them."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Protocol

from medusakit.text.call_formats import CallFormat, Tags
from medusakit.text.call_values import Schema, Written, parameters_of, written_as


class ArgumentsReader(Protocol):
    @property
    def closed(self) -> bool:
        """The arguments have come to their end."""

    def take(self, text: str) -> tuple[str, str]:
        """(JSON text that has become certain, what of `text` is left: no part of the arguments, or not certain)"""


def arguments_reader(form: CallFormat, schema: Schema) -> ArgumentsReader:
    return JsonArguments() if form.tags is None else TaggedArguments(form.tags, schema)


class _Quotes:
    """Whether a place in a JSON text that comes in pieces is in a string."""

    def __init__(self) -> None:
        self._quoted, self._escaped = False, False

    def outside(self, char: str) -> bool:
        """Of the next character; a string's quotes are part of it."""
        if self._quoted:
            self._quoted = self._escaped or char != '"'
            self._escaped = char == "\\" and not self._escaped
            return False
        self._quoted = char == '"'
        return not self._quoted


class JsonArguments:
    """One JSON object, told as it is."""

    def __init__(self) -> None:
        self._depth, self._quotes = 0, _Quotes()
        self.closed = False

    def take(self, text: str) -> tuple[str, str]:
        for place, char in enumerate(text):
            if self._quotes.outside(char) and char in "{}":
                self._depth += 1 if char == "{" else -1
                self.closed = self._depth == 0
                if self.closed:
                    return text[: place + 1], text[place + 1 :]
        return text, ""


_Step = tuple[str, str]


class TaggedArguments:
    """Each parameter by itself, of which an object is made."""

    def __init__(self, tags: Tags, schema: Schema) -> None:
        self._tags = tags
        self._heads = {tags.named(name): (name, written_as(one, schema)) for name, one in parameters_of(schema).items()}
        self._state: Callable[[str], _Step | None] = self._naming
        self._quotes = _Quotes()
        self._lead = "{"
        self.closed = False

    def take(self, text: str) -> tuple[str, str]:
        told = ""
        while not self.closed and (step := self._state(text)) is not None:
            told, text = told + step[0], step[1]
        return told, text

    # A state takes what it can of the text, and may change the state; None: it needs more.

    def _naming(self, text: str) -> _Step | None:
        if not text:
            return None
        for head, (name, written) in self._heads.items():
            if text.startswith(head):
                return self._begin(name, written), text[len(head) :]
        if any(head.startswith(text) for head in self._heads):
            return None
        self.closed = True
        return ("{}" if self._lead == "{" else "}"), text

    def _begin(self, name: str, written: Written) -> str:
        states = {Written.JSON: self._json, Written.TEXT: self._quoting, Written.TEXT_OR_NULL: self._doubting}
        self._state, self._quotes = states[written], _Quotes()
        lead, self._lead = self._lead, ", "
        return f"{lead}{_quoted(name)}: "

    def _json(self, text: str) -> _Step | None:
        """Outside of strings, no JSON that a grammar permits has in it what a closing tag begins with."""
        end = next((place for place, char in enumerate(text) if self._ends(char)), None)
        if end is None:
            return (text, "") if text else None
        self._state = self._closing
        return text[:end], text[end:].removeprefix(self._tags.pad)

    def _ends(self, char: str) -> bool:
        return self._quotes.outside(char) and (self._tags.pad + self._tags.closes).startswith(char)

    def _doubting(self, text: str) -> _Step | None:
        nulls = ["null" + self._tags.pad + self._tags.closes, "null" + self._tags.closes]
        if any(text.startswith(null) for null in nulls):
            self._state = self._closing
            return "null", text.removeprefix("null").removeprefix(self._tags.pad)
        return None if any(null.startswith(text) for null in nulls) else self._quoting(text)

    def _quoting(self, text: str) -> _Step:
        self._state = self._text
        return '"', text

    def _text(self, text: str) -> _Step | None:
        pad, closes = self._tags.pad, self._tags.closes
        end = text.find(closes)
        if end >= 0:
            self._state = self._closing
            return _quoted(text[:end].removesuffix(pad))[1:], text[end:]
        certain = len(text) - max(pending(text, closes), pending(text, pad + closes))
        return (_quoted(text[:certain])[1:-1], text[certain:]) if certain else None

    def _closing(self, text: str) -> _Step | None:
        whole = self._tags.closes + self._tags.after
        if not text.startswith(whole):
            return None
        self._state = self._naming
        return "", text[len(whole) :]


def pending(text: str, mark: str) -> int:
    """How many characters at the end of the text may be the beginning of the mark."""
    lengths = range(min(len(text), len(mark) - 1), 0, -1)
    return next((length for length in lengths if text.endswith(mark[:length])), 0)


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
