"""Token ids in, text out, as soon as it is certain.

Text is held back for two reasons only: a character whose bytes have not all come, and characters that may begin a stop
string. After a stop nothing comes out any more.
"""

from __future__ import annotations

import codecs
from collections.abc import Sequence
from dataclasses import dataclass

from medusakit.text.stops import StopMatcher
from medusakit.text.tokenizer import Tokenizer

_decoder = codecs.getincrementaldecoder("utf-8")


@dataclass(frozen=True, slots=True)
class Piece:
    """text: what became certain. stopped: a stop string is complete; neither it nor anything after it comes out."""

    text: str
    stopped: bool


class TextStream:
    """The text of one answer. All pieces and the flush, joined, are `tokenizer.decode(ids)` up to the stop string,
    with a first space if it `continues`.

    Control tokens have no text, except those `shown`. Bytes that are not UTF-8 become U+FFFD, except that a character
    left incomplete at the end is dropped.

    stop       strings that end the answer, none empty
    continues  the ids continue text that was there before, so a first space is real; else it belongs to the
               vocabulary's space prefix, if that has one, and is taken away
    shown      control tokens that are text of this answer: marks of its form (`[TOOL_CALLS]`)
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        stop: Sequence[str] = (),
        *,
        continues: bool = False,
        shown: frozenset[int] = frozenset(),
    ) -> None:
        self._tokenizer = tokenizer
        self._silent = tokenizer.special_ids - shown
        self._decode = _decoder(errors="replace")
        self._stops = StopMatcher(stop)
        self._drop_space = tokenizer.space_prefix and not continues
        self._held = ""
        self._stopped = False
        self._closed = False

    def push(self, token_id: int) -> Piece:
        """The next token."""
        if self._closed:
            return Piece("", self._stopped)
        fresh = self._text_of(token_id)
        text = self._held + fresh
        found = self._stops.feed(fresh)
        if found:
            end, length = found
            text = text[: len(self._held) + end - length]
            self._held, self._stopped, self._closed = "", True, True
            return Piece(text, True)
        certain = len(text) - self._stops.pending
        self._held = text[certain:]
        return Piece(text[:certain], False)

    def flush(self) -> str:
        """The end: what may have begun a stop string is text after all. Later pushes have no text."""
        rest, self._held = self._held, ""
        self._closed = True
        return rest

    def _text_of(self, token_id: int) -> str:
        """Characters complete with this token. Scores can be wider than the vocabulary: ids beyond say nothing."""
        if token_id >= self._tokenizer.vocab_size:
            return ""
        data = self._tokenizer.token_bytes(token_id)
        text = "" if token_id in self._silent else self._decode.decode(data)
        if self._drop_space and text:
            self._drop_space = False
            text = text.removeprefix(" ")
        return text
