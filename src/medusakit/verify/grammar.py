"""Grammars of answers in a given form, ready to be followed (verify/masked.py) and to guide drafts (verify/guide.py).

They are llguidance's, an optional dependency. Compiling one takes milliseconds to tenths of a second; a matcher, which
follows one answer, is a copy of the one that compiling made and costs microseconds.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from medusakit.errors import MissingExtraError, UsageError
from medusakit.text.tokenizer import Tokenizer

# One way to write a document, as models mostly do: free whitespace would let an answer never end.
LAYOUT = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}
ANY_OBJECT: Mapping[str, Any] = {"type": "object"}
MAX_SCHEMA_BYTES = 64 << 10
# Work on one schema at most: llguidance counts it instead of measuring time. Its own limits for lexers, a fifth of its
# own for productions: about a second altogether.
LIMITS = {"initial_lexer_fuel": 1_000_000, "max_lexer_states": 250_000, "max_grammar_size": 100_000}


class Grammars:
    """Grammars over one vocabulary, which is prepared at the first use. Safe to share between threads."""

    def __init__(self, tokenizer: Tokenizer, vocab_size: int) -> None:
        self._tokenizer, self._vocab_size = tokenizer, vocab_size
        self._lock = threading.Lock()
        self._prepared: FormVocabulary | None = None

    def json_schema(self, schema: Mapping[str, Any] = ANY_OBJECT) -> Grammar:
        """Documents of a JSON schema. Raises UsageError for a schema that is none, asks for what is not known or is too
        large, MissingExtraError without llguidance. Takes a while: not for an event loop."""
        llguidance = _llguidance()
        vocabulary = self._vocabulary(llguidance)
        try:
            text = llguidance.LLMatcher.grammar_from_json_schema(_written(schema), LAYOUT)
        except ValueError as error:
            raise _cannot(str(error)) from None
        limits = llguidance.LLParserLimits(**LIMITS)
        pristine = llguidance.LLMatcher(vocabulary.prepared, text, log_level=0, limits=limits)
        if pristine.is_error():
            raise _cannot(pristine.get_error())
        return Grammar(text, vocabulary, pristine)

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
        incomplete character at its end is left out."""
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
    """text: as llguidance writes it. Compared by it, so that equal requests are equal."""

    text: str
    vocabulary: FormVocabulary = field(repr=False, compare=False)
    pristine: Any = field(repr=False, compare=False)

    def matcher(self) -> Any:
        """A fresh one, for one answer. Any thread may ask."""
        return self.pristine.deep_copy()


def _written(schema: Mapping[str, Any]) -> str:
    try:
        text = json.dumps(schema)
    except RecursionError:
        raise _cannot("it is nested too deeply") from None
    if len(text) > MAX_SCHEMA_BYTES:
        raise _cannot(f"it is {len(text)} bytes long; at most {MAX_SCHEMA_BYTES}")
    return text


def _cannot(reason: str) -> UsageError:
    return UsageError(f"the JSON schema cannot be followed: {reason[:300]}", hint='{"type": "object"}')


class _Vocabulary:
    """What llguidance wants to know of a tokenizer. Ids beyond the vocabulary have no bytes and are never allowed."""

    def __init__(self, tokenizer: Tokenizer, vocab_size: int) -> None:
        known = range(min(tokenizer.vocab_size, vocab_size))
        self.special_token_ids = sorted(token for token in tokenizer.special_ids if token in known)
        self.tokens = [b"" if token in tokenizer.special_ids else tokenizer.token_bytes(token) for token in known]
        self.tokens += [b""] * (vocab_size - len(self.tokens))
        for token in self.special_token_ids:
            self.tokens[token] = b"\xff" + tokenizer.token_bytes(token)  # llguidance's mark for control tokens
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
