"""Grammars of answers in a given form, ready to be followed (verify/masked.py) and to guide drafts (verify/guide.py).

They are llguidance's, an optional dependency. Compiling one takes tenths of a second (compiling.py); a matcher, which
follows one answer, is a copy of the one that compiling made and costs microseconds.
"""

from __future__ import annotations

import json
import re
import threading
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from medusakit.errors import FormError, MissingExtraError
from medusakit.text.tokenizer import Tokenizer
from medusakit.verify.compiling import compiled, objection

ANY_OBJECT: Mapping[str, Any] = {"type": "object"}
MAX_SCHEMA_BYTES = 64 << 10
MAX_NESTING = 100  # of objects and lists in a schema; llguidance itself ends at 128
MAX_KEPT = 8  # grammars: mostly one application asks for few forms, again and again
_AROUND = re.compile(r"\n(?:<state>| *\d+ \| )")
CONTROL = b"\xff"  # llguidance's mark before a control token, which it then writes as [id]


class Grammars:
    """Grammars over one vocabulary, which is prepared at the first use. Safe to share between threads."""

    def __init__(self, tokenizer: Tokenizer, vocab_size: int) -> None:
        self._tokenizer, self._vocab_size = tokenizer, vocab_size
        self._lock = threading.Lock()
        self._prepared: FormVocabulary | None = None
        self._kept: OrderedDict[str, Grammar] = OrderedDict()  # by schema, the latest used last

    @property
    def tokenizer(self) -> Tokenizer:
        return self._tokenizer

    def json_schema(self, schema: Mapping[str, Any] = ANY_OBJECT) -> Grammar:
        """Documents of a JSON schema. Raises FormError for a schema that is none, asks for what is not known, is too
        large or too much work, MissingExtraError without llguidance. Takes a while: not for an event loop."""
        text = written(schema)
        return self.of(text, "" if schema is ANY_OBJECT else text)

    def of(self, form: str, trial: str, shown: frozenset[int] = frozenset()) -> Grammar:
        """A JSON schema, or llguidance's Lark, which begins with `start:`. Raises like `json_schema`.

        trial  a form over bytes that is as much work, to be tried first; empty: none is needed
        shown  see `Grammar`
        """
        llguidance = _llguidance()
        with self._lock:
            if form in self._kept:
                self._kept.move_to_end(form)
                return self._kept[form]
        vocabulary = self._vocabulary(llguidance)
        if trial:
            tried(trial)
        try:
            grammar = Grammar(*compiled(llguidance, vocabulary.prepared, form), vocabulary, shown)
        except ValueError as error:
            raise cannot(str(error)) from None
        with self._lock:
            self._kept[form] = grammar
            if len(self._kept) > MAX_KEPT:
                self._kept.popitem(last=False)
        return grammar

    def _vocabulary(self, llguidance: Any) -> FormVocabulary:
        with self._lock:
            if self._prepared is None:
                known = _Vocabulary(self._tokenizer, self._vocab_size)
                wrapped = llguidance.TokenizerWrapper(known)
                ends = tuple(sorted(self._tokenizer.eos_ids))
                prepared = llguidance.LLTokenizer(wrapped, eos_token=list(ends))
                self._prepared = FormVocabulary(self._tokenizer, prepared, ends, frozenset(known.special_token_ids))
        return self._prepared


@dataclass(frozen=True, slots=True)
class FormVocabulary:
    """prepared: as llguidance has it. ends: ids that end an answer, ascending. control: ids that are no text."""

    tokenizer: Tokenizer
    prepared: Any
    ends: tuple[int, ...]
    control: frozenset[int]

    def tokens_of(self, text: bytes) -> list[int]:
        """The tokens that a text is cut into in the middle of another one; none where that cannot be told. An
        incomplete character at its end is left out, and so is what follows a control token."""
        text, control, spelled = text.partition(CONTROL)
        if control and not text:
            return [int(spelled[1 : spelled.index(b"]")])]
        whole = text.decode("utf-8", "ignore")
        if not self.tokenizer.space_prefix:
            return self.tokenizer.encode(whole)
        ids = self.tokenizer.encode("\n" + whole)  # the space goes before the line break, and both are taken off
        for place in range(1, len(ids) + 1):
            if self.tokenizer.token_bytes(ids[place - 1]).endswith(b"\n"):
                return ids[place:]
        return []


@dataclass(frozen=True, slots=True)
class Grammar:
    """text: as llguidance writes it. Compared by it, so that equal requests are equal. shown: control tokens that
    are part of the form, and so of the answer's text."""

    text: str
    pristine: Any = field(repr=False, compare=False)
    vocabulary: FormVocabulary = field(repr=False, compare=False)
    shown: frozenset[int] = frozenset()

    def matcher(self) -> Any:
        """A fresh one, for one answer. Any thread may ask."""
        return self.pristine.deep_copy()


def tried(form: str) -> None:
    """Raises FormError for a form over bytes that cannot be followed, or is too much work."""
    if reason := objection(form):
        raise cannot(reason)


def written(schema: Mapping[str, Any]) -> str:
    """As JSON. Raises FormError for a schema that is too large or nested too deeply."""
    if nesting(schema) > MAX_NESTING:
        raise cannot(f"it is nested more than {MAX_NESTING} deep")
    text = json.dumps(schema)
    if len(text) > MAX_SCHEMA_BYTES:
        raise cannot(f"it is {len(text)} bytes long; at most {MAX_SCHEMA_BYTES}")
    return text


def nesting(value: Any) -> int:
    """How many objects and lists stand in each other, up to one more than may. Level by level: no depth is too deep."""
    depth, level = 0, [value]
    while depth <= MAX_NESTING and (level := [one for one in level if isinstance(one, Mapping | list | tuple)]):
        depth += 1
        level = [inner for one in level for inner in (one.values() if isinstance(one, Mapping) else one)]
    return depth


def cannot(reason: str) -> FormError:
    """llguidance's reasons go on with the grammar around the place, or the parser's state, which help nobody."""
    reason = _AROUND.split(reason, maxsplit=1)[0]
    return FormError(f"the JSON schema cannot be followed: {reason[:300]}", hint='{"type": "object"}')


class _Vocabulary:
    """What llguidance wants to know of a tokenizer. Ids beyond the vocabulary have no bytes and are never allowed."""

    def __init__(self, tokenizer: Tokenizer, vocab_size: int) -> None:
        known = range(min(tokenizer.vocab_size, vocab_size))
        self.special_token_ids = sorted(token for token in tokenizer.special_ids if token in known)
        self.tokens = [b"" if token in tokenizer.special_ids else tokenizer.token_bytes(token) for token in known]
        self.tokens += [b""] * (vocab_size - len(self.tokens))
        for token in self.special_token_ids:
            self.tokens[token] = CONTROL + tokenizer.token_bytes(token)
        self.eos_token_id = min(tokenizer.eos_ids, default=0)
        self.bos_token_id = tokenizer.bos_id
        self._tokenizer = tokenizer

    def __call__(self, text: str | bytes) -> list[int]:
        return self._tokenizer.encode(text if isinstance(text, str) else text.decode("utf-8", "replace"))


def _llguidance() -> Any:
    try:
        import llguidance
    except ImportError:
        message = "answers in a given form need llguidance, which is not installed"
        raise MissingExtraError(message, hint="pip install 'medusakit[grammar]'") from None
    return llguidance
