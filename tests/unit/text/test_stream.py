from __future__ import annotations

import pytest

from medusakit.text.stream import Piece, TextStream
from vocabularies import byte_tokenizer, spm_tokenizer

END, THINK = 259, 260


def pieces(stream: TextStream, ids: list[int]) -> list[str]:
    return [stream.push(token_id).text for token_id in ids]


def test_a_character_comes_when_its_last_byte_does() -> None:
    stream = TextStream(byte_tokenizer())
    assert pieces(stream, [*"aé👍".encode()]) == ["a", "", "é", "", "", "", "👍"]
    assert stream.flush() == ""


def test_invalid_bytes_are_replaced_and_an_incomplete_end_is_dropped() -> None:
    stream = TextStream(byte_tokenizer())
    assert pieces(stream, [0xFF, 0x41, 0xE4, 0xBD, 0x42, 0xE4, 0xBD]) == ["\ufffd", "A", "", "", "\ufffdB", "", ""]
    assert stream.flush() == ""


def test_a_stop_string_over_several_tokens() -> None:
    stream = TextStream(byte_tokenizer(), ["</s>"])
    assert pieces(stream, [*b"ab</"]) == ["a", "b", "", ""]
    assert stream.push(ord("s")) == Piece("", False)
    assert stream.push(ord(">")) == Piece("", True)
    assert stream.push(ord("x")) == Piece("", True)
    assert stream.flush() == ""


def test_what_only_looked_like_a_stop_comes_out() -> None:
    stream = TextStream(byte_tokenizer(), ["</s>"])
    assert pieces(stream, [*b"a</x<"]) == ["a", "", "", "</x", ""]
    assert stream.flush() == "<"
    assert stream.push(ord("y")) == Piece("", False)


def test_a_stop_inside_one_token() -> None:
    """Text before it comes out, the rest of the token does not."""
    stream = TextStream(byte_tokenizer(), ["he"])
    assert stream.push(ord("x")) == Piece("x", False)
    assert stream.push(257) == Piece("t", True)


def test_control_tokens_that_are_shown_are_text_like_any() -> None:
    stream = TextStream(byte_tokenizer(), ["_end"], shown=frozenset({END}))
    assert pieces(stream, [ord("a"), THINK, 258]) == ["a", "<think>", ""]
    assert stream.push(END) == Piece("<|im", True)


def test_control_tokens_have_no_text_and_cannot_stop() -> None:
    stream = TextStream(byte_tokenizer(), ["<|im_end|>"])
    assert pieces(stream, [257, END, THINK]) == ["the", "", "<think>"]


def test_the_space_prefix_is_taken_away_once() -> None:
    tokenizer = spm_tokenizer()
    ids = tokenizer.encode("the the")
    assert pieces(TextStream(tokenizer), ids) == ["the", " the"]
    assert pieces(TextStream(tokenizer, continues=True), ids) == [" the", " the"]
    space, *rest = tokenizer.encode(" the")
    assert "".join(pieces(TextStream(tokenizer), [1, space, *rest])) == " the"


def test_byte_fallback() -> None:
    tokenizer = spm_tokenizer()
    ids = tokenizer.encode("中👍")
    assert pieces(TextStream(tokenizer), ids)[-5:] == ["中", "", "", "", "👍"]


def test_ids_beyond_the_vocabulary_say_nothing() -> None:
    """Scores of some models are padded, so such an id can be chosen; text before and after it stays whole."""
    tokenizer = byte_tokenizer()
    first, *rest = "é".encode()
    assert pieces(TextStream(tokenizer), [ord("a"), 999, first, 999, *rest]) == ["a", "", "", "", "é"]
    assert tokenizer.decode([ord("a"), 999, first, *rest]) == "aé"
    with pytest.raises(IndexError):
        TextStream(tokenizer).push(-1)
