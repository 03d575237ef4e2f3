from __future__ import annotations

import pytest

from medusakit.text.pieces import BYTE_OF_CHAR, CHAR_OF_BYTE, Pieces


def test_the_alphabet_is_gpt2s() -> None:
    assert sorted(BYTE_OF_CHAR.values()) == list(range(256))
    assert (CHAR_OF_BYTE[0x20], CHAR_OF_BYTE[0x0A], CHAR_OF_BYTE[0x00]) == ("Ġ", "Ċ", "Ā")
    assert (CHAR_OF_BYTE[0x21], CHAR_OF_BYTE[0x7F], CHAR_OF_BYTE[0xAD]) == ("!", "ġ", "Ń")


@pytest.mark.parametrize(
    ("piece", "data"),
    [("Ġthe", b" the"), ("Ã©", "é".encode()), ("ã", b"\xe3"), ("<0x0A>", b"<0x0A>"), ("", b""), ("a b", b"a b")],
)
def test_byte_level(piece: str, data: bytes) -> None:
    assert Pieces([piece], "byte_level", frozenset()).bytes_of(0) == data


@pytest.mark.parametrize(
    ("piece", "data"),
    [
        ("▁the", b" the"),
        ("é", "é".encode()),
        ("<0x0A>", b"\n"),
        ("<0xff>", b"\xff"),
        ("<0x0A", b"<0x0A"),
        ("▁▁", b"  "),
    ],
)
def test_sentencepiece(piece: str, data: bytes) -> None:
    assert Pieces([piece], "spm", frozenset()).bytes_of(0) == data


def test_added_tokens_are_spelled_as_they_read() -> None:
    """DeepSeek's control tokens hold U+2581, and a literal "Ġ" must not become a space."""
    texts = ["<\uff5cend\u2581of\uff5c>", "Ġ"]
    for spelling in ("byte_level", "spm"):
        pieces = Pieces(texts, spelling, frozenset({0, 1}))
        assert [pieces.bytes_of(0), pieces.bytes_of(1)] == [text.encode() for text in texts]


@pytest.mark.parametrize("token_id", [-1, 1])
def test_an_unknown_id(token_id: int) -> None:
    with pytest.raises(IndexError):
        Pieces(["a"], "spm", frozenset()).bytes_of(token_id)
