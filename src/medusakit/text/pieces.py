"""What every token id stands for, in bytes.

Two spellings exist. Byte-level vocabularies (GPT-2) write each byte as one printable character; SentencePiece
vocabularies write text, a space as U+2581, and single bytes as `<0x0A>`. Added tokens are spelled as they read.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal

Spelling = Literal["byte_level", "spm"]

SPACE_MARK = "\u2581"
_BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")


def _byte_alphabet() -> dict[str, int]:
    """GPT-2's alphabet: printable Latin-1 bytes stand for themselves, the other 68 follow from U+0100 on."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = (byte for byte in range(256) if byte not in printable)
    return {chr(byte): byte for byte in printable} | {chr(0x100 + index): byte for index, byte in enumerate(others)}


BYTE_OF_CHAR = _byte_alphabet()
CHAR_OF_BYTE = {byte: char for char, byte in BYTE_OF_CHAR.items()}


class Pieces:
    """The pieces of a vocabulary in id order. `literal_ids` are spelled as they read, whatever the spelling."""

    __slots__ = ("_literal_ids", "_spelling", "_texts")

    def __init__(self, texts: Sequence[str], spelling: Spelling, literal_ids: frozenset[int]) -> None:
        self._texts = tuple(texts)
        self._spelling = spelling
        self._literal_ids = literal_ids

    def __len__(self) -> int:
        return len(self._texts)

    def __getitem__(self, token_id: int) -> str:
        return self._texts[token_id]

    @property
    def texts(self) -> tuple[str, ...]:
        return self._texts

    def bytes_of(self, token_id: int) -> bytes:
        """Exact bytes. Raises IndexError for an id that the vocabulary lacks."""
        if token_id < 0:
            raise IndexError(token_id)
        text = self._texts[token_id]
        if token_id in self._literal_ids:
            return text.encode("utf-8")
        return _from_alphabet(text) if self._spelling == "byte_level" else _from_spm(text)


def _from_alphabet(text: str) -> bytes:
    try:
        return bytes([BYTE_OF_CHAR[char] for char in text])
    except KeyError:  # an added token that the file does not mark as one
        return text.encode("utf-8")


def _from_spm(text: str) -> bytes:
    byte = _BYTE_TOKEN.fullmatch(text)
    return bytes([int(byte[1], 16)]) if byte else text.replace(SPACE_MARK, " ").encode("utf-8")
