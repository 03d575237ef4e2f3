from __future__ import annotations

import pytest

from medusakit.errors import UsageError
from medusakit.text.gguf import vocabulary_from_gguf
from medusakit.text.tokenizer import Tokenizer
from vocabularies import TEXTS, byte_metadata, byte_tokenizer, random_texts, spm_metadata, spm_tokenizer

START, END, THINK = 258, 259, 260


def test_user_text_has_no_control_tokens() -> None:
    tokenizer = byte_tokenizer()
    ids = tokenizer.encode("hi<|im_end|>")
    assert END not in ids
    assert tokenizer.decode(ids) == "hi<|im_end|>"


def test_parsed_text_has_them() -> None:
    tokenizer = byte_tokenizer()
    assert tokenizer.encode("<|im_start|>the<|im_end|>", parse_special=True) == [START, 257, END]


def test_user_defined_tokens_are_always_whole() -> None:
    tokenizer = byte_tokenizer()
    assert tokenizer.encode("<think>the") == [THINK, 257]
    assert THINK not in tokenizer.special_ids
    assert tokenizer.decode([THINK, 257]) == "<think>the"


def test_decode_hides_control_tokens_unless_asked() -> None:
    tokenizer = byte_tokenizer()
    ids = [START, 257, END]
    assert tokenizer.decode(ids) == "the"
    assert tokenizer.decode(ids, show_special=True) == "<|im_start|>the<|im_end|>"


def test_invalid_bytes_show_as_replacement() -> None:
    assert byte_tokenizer().decode([0xE4, 0x41, 0xC3]) == "\ufffdA\ufffd"


def test_token_bytes_of_every_id() -> None:
    tokenizer = byte_tokenizer()
    assert [tokenizer.token_bytes(byte) for byte in range(256)] == [bytes([byte]) for byte in range(256)]
    assert tokenizer.vocab_size == 261
    assert tokenizer.token_bytes(END) == b"<|im_end|>"
    with pytest.raises(IndexError):
        tokenizer.token_bytes(261)


@pytest.mark.parametrize("make", [byte_tokenizer, spm_tokenizer, lambda: spm_tokenizer(space_prefix=False)])
def test_round_trip(make: object) -> None:
    tokenizer = make()  # type: ignore[operator]
    for text in TEXTS + random_texts(200):
        ids = tokenizer.encode(text)
        assert tokenizer.decode(ids) == text
        joined = b"".join(map(tokenizer.token_bytes, ids))
        assert joined == (f" {text}" if tokenizer.space_prefix and text else text).encode()


def test_the_space_prefix() -> None:
    with_prefix, without = spm_tokenizer(), spm_tokenizer(space_prefix=False)
    assert with_prefix.encode("the") == without.encode(" the")
    assert with_prefix.decode(without.encode(" the")) == "the"
    assert without.decode(without.encode(" the")) == " the"


def test_a_lone_surrogate_is_refused() -> None:
    with pytest.raises(UsageError, match="not valid Unicode"):
        byte_tokenizer().encode("a\ud800")


def test_hash_follows_pieces_and_control_tokens() -> None:
    same, other = byte_tokenizer(), spm_tokenizer()
    assert same.hash == byte_tokenizer(chat_template="{{ messages }}").hash
    assert same.hash != other.hash
    swapped = byte_metadata()
    swapped["tokenizer.ggml.tokens"][0:2] = swapped["tokenizer.ggml.tokens"][1::-1]
    assert Tokenizer(vocabulary_from_gguf(swapped)).hash != same.hash
    assert len(same.hash) == 64
    assert Tokenizer(vocabulary_from_gguf(spm_metadata())).hash == other.hash


def test_another_template() -> None:
    own = byte_tokenizer(chat_template="own", **{"chat_template.tool_use": "for tools"})
    assert (own.chat_template, own.tool_template) == ("own", "for tools")
    other = own.with_template("other")
    assert (other.chat_template, other.tool_template, other.hash) == ("other", "other", own.hash)
    assert own.chat_template == "own"
