"""Cut text at control tokens. Only done where asked for: in user text a control token is ordinary characters."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from medusakit.text.vocabulary import ControlToken


class ControlSplitter:
    """Finds control tokens, the longest where several begin at one place."""

    def __init__(self, control: Iterable[ControlToken]) -> None:
        self._tokens = {token.text: token for token in control if token.text}
        self._lengths = sorted({len(text) for text in self._tokens}, reverse=True)
        # one character class, then a look-up: an alternation of gemma's 6,000 tokens costs 0.1 ms a "<"
        first = "".join(sorted({re.escape(text[0]) for text in self._tokens}))
        self._first = re.compile(f"[{first}]") if first else None

    def split(self, text: str) -> Iterator[str | int]:
        """Non-empty stretches of ordinary text, and the ids of the control tokens between them."""
        done = 0
        for start, token in self._matches(text):
            before = text[done:start]
            if token.strips_left:
                before = before.rstrip()
            if before:
                yield before
            yield token.id
            done = start + len(token.text)
            if token.strips_right:
                done = _skip_space(text, done)
        if done < len(text):
            yield text[done:]

    def guard(self, text: str, mark: str) -> str:
        """`text` with `mark` inside each control token, so that none is left. Removing the mark gives `text` back."""
        cuts = [start + 1 for start in self._starts(text) if self._token_at(text, start)]
        edges = zip([0, *cuts], [*cuts, len(text)], strict=True)
        return mark.join(text[start:end] for start, end in edges)

    def _starts(self, text: str) -> Iterator[int]:
        """Every place where a control token could begin."""
        return (found.start() for found in self._first.finditer(text)) if self._first else iter(())

    def _matches(self, text: str) -> Iterator[tuple[int, ControlToken]]:
        """Control tokens from left to right, not overlapping."""
        done = 0
        for start in self._starts(text):
            if start >= done and (token := self._token_at(text, start)):
                yield start, token
                done = start + len(token.text)

    def _token_at(self, text: str, start: int) -> ControlToken | None:
        candidates = (self._tokens.get(text[start : start + length]) for length in self._lengths)
        return next((token for token in candidates if token), None)


def _skip_space(text: str, at: int) -> int:
    while at < len(text) and text[at].isspace():
        at += 1
    return at
