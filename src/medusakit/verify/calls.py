"""Grammars of answers that may or must call functions: free text until a call begins, and then nothing but a whole one.

Written in llguidance's dialect of Lark. A control token stands there as `<[id]>`; in free text every control token may
stand but those that end an answer or mark calls. The spelling of a mark may not: then reading the text is unambiguous.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from medusakit.errors import FormError
from medusakit.text.call_formats import CallFormat
from medusakit.text.thoughts import Thought
from medusakit.text.tokenizer import Tokenizer
from medusakit.verify.arguments import Function, Spell, argument_rules, document
from medusakit.verify.grammar import Grammar, Grammars, tried
from medusakit.verify.lark import pattern, quoted, ranges

BLAME_S = 4.0  # to find which function it is that cannot be called


@dataclass(frozen=True, slots=True)
class Calling:
    """What an answer may hold.

    free       text without a call is an answer, too, and may come before calls
    several    more than one call
    document   JSON schema of an answer without calls; None: any text
    thought    what may come before calls that must be
    """

    form: CallFormat
    functions: tuple[Function, ...]
    free: bool = True
    several: bool = True
    document: Mapping[str, Any] | None = None
    thought: Thought | None = None


class UncallableError(FormError):
    """The schema of a function's arguments cannot be followed. place: which function."""

    def __init__(self, message: str, place: int, *, hint: str | None) -> None:
        super().__init__(message, hint=hint)
        self.place = place


def call_grammar(grammars: Grammars, calling: Calling) -> Grammar:
    """Raises UncallableError, FormError (all together are too much), MissingExtraError. Takes a while."""
    marks = _Marks(calling.form, grammars.tokenizer)
    try:
        text = "\n".join([f"start: {_start(calling, marks)}", *_rules(calling, marks)])
        places = " | ".join(f"args_{place}" for place in range(len(calling.functions)))
        return grammars.of(text, "\n".join([f"start: {places}", *_schemas(calling, quoted)]), marks.shown)
    except FormError as error:
        _blame(calling)
        raise FormError(error.message.replace("JSON schema", "functions together", 1), hint=error.hint) from None


def _blame(calling: Calling) -> None:
    """Raises UncallableError for the first function that cannot be called even alone, if it is found in time: each
    costs a trial, and there may be a hundred."""
    until_s = time.monotonic() + BLAME_S
    for place, function in enumerate(calling.functions):
        if time.monotonic() > until_s:
            return
        try:
            tried("\n".join(_lines(argument_rules("start", function, calling.form.tags))))
        except FormError as error:
            raise UncallableError(error.message, place, hint=error.hint) from None


def _start(calling: Calling, marks: _Marks) -> str:
    form, marker = calling.form, marks.term(calling.form.marker)
    calls = ("/ ?/ " if form.spaced else "") + f"{marks.term(form.opens)} call"
    if calling.several and form.between is not None:
        calls += f" ({marks.term(form.between)} call)*"
    calls += f" {marks.term(form.closes)}"
    if not calling.free:
        return f"{_before(calling.thought)}{marker} {calls}"
    if calling.document is not None:
        return f"document | {marker} {calls}"
    if not form.marker:
        return f"{marks.said}SAID? | {calls}"
    if marks.is_text:
        return f"{marks.said}(SAID? | begun {calls})"
    return f"{marks.said}SAID? ({marker} {calls})?"


def _before(thought: Thought | None) -> str:
    """Of calls that must be."""
    if thought is None:
        return ""
    return "(thought GAP)? " if thought.opens else "thought GAP "


def _thought(thought: Thought, start: str, marks: _Marks) -> Iterator[str]:
    """Its text cannot have in it the spelling of what begins a call."""
    yield r"GAP: /\n{0,2}/"
    before, closes = pattern(start), pattern(thought.closes)
    if marks.term(thought.closes) == quoted(thought.closes):
        yield f"thinking[lazy]: /(?s:.*){closes}/ & ~/(?s:.*){before}(?s:.*)/"
        yield f"thought: {marks.term(thought.opens)} thinking"
    else:
        yield f"THINKING: /(?s:.*)/ & ~/(?s:.*)({before}|{closes})(?s:.*)/"
        yield f"thought: {marks.term(thought.opens)} THINKING {marks.term(thought.closes)}"


def _rules(calling: Calling, marks: _Marks) -> Iterator[str]:
    form, functions = calling.form, list(enumerate(calling.functions))
    if calling.free:
        yield from _free(calling, marks)
    elif calling.thought is not None:
        yield from _thought(calling.thought, form.start, marks)
    middle = marks.term(form.middle)
    if form.id_mark:
        middle = f"{marks.term(form.id_mark)} ID {middle}"
        yield f"ID: /[a-zA-Z0-9]{{{form.id_length}}}/"
    names = " | ".join(f"{quoted(function.name)} {middle} args_{place}" for place, function in functions)
    yield f"call: {marks.term(form.head)} ({names}) {marks.term(form.tail)}"
    yield from _schemas(calling, marks.term)


def _schemas(calling: Calling, spell: Spell) -> Iterator[str]:
    rules: dict[str, str] = {}
    for place, function in enumerate(calling.functions):
        rules |= argument_rules(f"args_{place}", function, calling.form.tags, spell)
    return _lines(rules)


def _lines(rules: Mapping[str, str]) -> Iterator[str]:
    return (f"{name}: {body}" for name, body in rules.items())


def _free(calling: Calling, marks: _Marks) -> Iterator[str]:
    """Of an answer without calls, or what comes before them."""
    if calling.document is not None:
        yield f"document: {document(calling.document)}"
        return
    start = pattern(calling.form.start)
    before = "(?s:.*)" if calling.form.marker else ""
    yield f"SAID: /(?s:.+)/ & ~/{before}{start}(?s:.*)/"
    if marks.is_text:
        yield f"begun[lazy]: /(?s:.*){start}/"
    if marks.others:
        yield f"other: <[{marks.others}]>"


class _Marks:
    """The format's texts in one vocabulary: which parts of them are control tokens there."""

    def __init__(self, form: CallFormat, tokenizer: Tokenizer) -> None:
        self._control = tokenizer.control
        between = form.between or ""
        texts = [form.marker, form.opens, form.head, form.id_mark, form.middle, form.tail, between, form.closes]
        if form.tags is not None:
            texts += [form.tags.opens, form.tags.middle, form.tags.pad, form.tags.closes, form.tags.after]
        self.shown = frozenset(part for text in texts for part in self._control.split(text) if isinstance(part, int))
        self.is_text = bool(form.marker) and not any(isinstance(part, int) for part in self._control.split(form.marker))
        self.others = ranges(sorted(tokenizer.special_ids - tokenizer.eos_ids - self.shown))

    @property
    def said(self) -> str:
        """Free text with control tokens in it, up to the last of them."""
        return "(SAID? other)* " if self.others else ""

    def term(self, text: str) -> str:
        parts = self._control.split(text)
        return " ".join(f"<[{part}]>" if isinstance(part, int) else quoted(part) for part in parts)
