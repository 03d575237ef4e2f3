"""An answer's text, as it comes, taken apart: what is said, and which functions are called with what.

The grammar (verify/calls.py) holds a call to its format once it has begun, so reading needs no more than the format's
texts and what is between them (call_arguments.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from medusakit.text.call_arguments import ArgumentsReader, arguments_reader, pending
from medusakit.text.call_formats import CallFormat
from medusakit.text.call_values import Schema


@dataclass(frozen=True, slots=True)
class Said:
    text: str


@dataclass(frozen=True, slots=True)
class Called:
    """index: of the call in its answer. id: as the model wrote it; None: it wrote none. The arguments follow."""

    index: int
    function: str
    id: str | None = None


@dataclass(frozen=True, slots=True)
class Argued:
    """A piece of the arguments of the call `index`, as JSON is written."""

    index: int
    text: str


Part = Said | Called | Argued


class CallReader:
    """Fed with the pieces of one answer, gives their parts as soon as they are certain.

    Held back are white space (before a call it is not part of what is said) and what may be the beginning of a call.
    """

    def __init__(self, form: CallFormat, functions: Mapping[str, Schema]) -> None:
        """functions: the schemas of their arguments by name."""
        self._form, self._functions = form, functions
        self._heads = {form.named(name): name for name in functions}
        self._state: Callable[[], list[Part] | None] = self._saying
        self._rest = ""  # read, but not told
        self._unsure = ""  # what led to a call, before `_rest`: text after all if no call follows
        self._num_calls = 0
        self._arguments: ArgumentsReader

    @property
    def complete(self) -> bool:
        """There are calls, and all of them have their arguments."""
        return self._num_calls > 0 and self._state == self._between_calls

    def feed(self, text: str) -> list[Part]:
        self._rest += text
        parts: list[Part] = []
        while (found := self._state()) is not None:
            parts += found
        return parts

    def end(self) -> list[Part]:
        """The answer ends here: what was held back is text, unless there are calls, after which nothing is said."""
        rest, self._rest = self._unsure + self._rest, ""
        self._unsure = ""
        return [Said(rest)] if rest and not self._num_calls else []

    # A state takes what it can from `_rest`, and may change the state; None: it needs more.

    def _saying(self) -> list[Part] | None:
        form, text = self._form, self._rest
        at = text.find(form.start)
        if at == 0 or (at > 0 and form.marker):
            after = at + len(form.marker)
            said = text[:at].rstrip()
            self._unsure, self._rest, self._state = text[len(said) : after], text[after:], self._naming
            return [Said(said)] if said else []
        if not form.marker and not form.start.startswith(text):
            self._state = self._only_saying
            return []
        certain = self._certain(text)
        self._rest = text[certain:]
        return [Said(text[:certain])] if certain else None

    def _only_saying(self) -> list[Part] | None:
        text, self._rest = self._unsure + self._rest, ""
        self._unsure = ""
        return [Said(text)] if text else None

    def _naming(self) -> list[Part] | None:
        """`opens`, the name, the id and all up to the arguments."""
        text = self._rest.lstrip().removeprefix(self._form.opens.lstrip())
        if self._form.opens.lstrip().startswith(text):
            return None
        if any(head.startswith(text) and head != text for head in self._heads):  # a name may go on to be another one
            return None
        if head := max((head for head in self._heads if text.startswith(head)), key=len, default=""):
            return self._identifying(self._heads[head], text[len(head) :])
        self._state = self._only_saying
        return []

    def _identifying(self, function: str, text: str) -> list[Part] | None:
        form = self._form
        length = form.id_length if form.id_mark else None
        if length is None:
            return self._call(function, None, text)
        end = length + len(form.middle)
        return self._call(function, text[:length], text[end:]) if len(text) >= end else None

    def _call(self, function: str, id: str | None, rest: str) -> list[Part]:
        self._unsure, self._rest, self._state = "", rest, self._arguing
        self._arguments = arguments_reader(self._form, self._functions[function])
        self._num_calls += 1
        return [Called(self._num_calls - 1, function, id)]

    def _arguing(self) -> list[Part] | None:
        told, self._rest = self._arguments.take(self._rest)
        if self._arguments.closed:
            self._state = self._between_calls
        return [Argued(self._num_calls - 1, told)] if told else None

    def _between_calls(self) -> list[Part] | None:
        form = self._form
        further = form.tail + form.between if form.between is not None else None
        if further is None or not self._rest.startswith(further):
            return None
        self._unsure, self._rest, self._state = further, self._rest[len(further) :], self._naming
        return []

    def _certain(self, text: str) -> int:
        """Characters at the front that are said whatever comes."""
        return len(text[: len(text) - pending(text, self._form.start)].rstrip())
