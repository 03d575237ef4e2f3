"""SentencePiece vocabularies against SentencePiece itself."""

from __future__ import annotations

import io
from typing import Any

import pytest
import sentencepiece

from medusakit.text.gguf import vocabulary_from_gguf
from medusakit.text.merges import merges_from_scores
from medusakit.text.tokenizer import Tokenizer
from vocabularies import BYTE, CONTROL, NORMAL, TEXTS, UNKNOWN, USER_DEFINED, random_texts

SPACES = [" " * count for count in range(2, 9)]


def test_order() -> None:
    """Best score first; of one piece, and among equal scores, the longer left part first."""
    pieces = ["a", "b", "ab", "ba", "aba", "c", "abab"]
    scores = [-9.0, -9.0, -1.0, -2.0, -3.0, -9.0, -3.0]
    merges = merges_from_scores(pieces, scores, range(len(pieces)))
    assert merges == [("a", "b"), ("b", "a"), ("aba", "b"), ("ab", "ab"), ("ab", "a"), ("a", "ba")]


def test_only_targets_are_made() -> None:
    assert merges_from_scores(["<", "s>", "<s>"], [0.0, 0.0, 0.0], [0, 1]) == []


def trained(*, prefix: bool, user_defined: list[str]) -> sentencepiece.SentencePieceProcessor:
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter((TEXTS + random_texts(300, seed=1)) * 2),
        model_writer=model,
        model_type="bpe",
        vocab_size=900,
        byte_fallback=True,
        add_dummy_prefix=prefix,
        user_defined_symbols=user_defined,
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        hard_vocab_limit=False,
        minloglevel=2,
    )
    return sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())


def metadata_of(processor: sentencepiece.SentencePieceProcessor, *, prefix: bool) -> dict[str, Any]:
    """As llama.cpp's converter writes it: user-defined pieces with real spaces and the score -1000."""
    texts, types, scores = [], [], []
    for token_id in range(processor.get_piece_size()):
        text = processor.id_to_piece(token_id)
        kind = kind_of(processor, token_id, text)
        texts.append(text.replace("▁", " ") if kind == USER_DEFINED else text)
        types.append(kind)
        scores.append(-1000.0 if kind == USER_DEFINED else processor.get_score(token_id))
    return {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": texts,
        "tokenizer.ggml.token_type": types,
        "tokenizer.ggml.scores": scores,
        "tokenizer.ggml.unknown_token_id": processor.unk_id(),
        "tokenizer.ggml.add_space_prefix": prefix,
    }


def kind_of(processor: sentencepiece.SentencePieceProcessor, token_id: int, text: str) -> int:
    if processor.is_unknown(token_id):
        return UNKNOWN
    if processor.is_control(token_id):
        return CONTROL
    if processor.is_byte(token_id):
        return BYTE
    is_run = set(text) == {"▁"} and processor.get_score(token_id) == 0.0 and len(text) > 1
    return USER_DEFINED if is_run or text in ("<think>", "\n\n") else NORMAL


@pytest.mark.parametrize("prefix", [True, False])
def test_encodes_like_sentencepiece(prefix: bool) -> None:
    user_defined = ["<think>", "\n\n", *([] if prefix else (run.replace(" ", "▁") for run in SPACES))]
    processor = trained(prefix=prefix, user_defined=user_defined)
    tokenizer = Tokenizer(vocabulary_from_gguf(metadata_of(processor, prefix=prefix)))
    runs = ["a" + " " * count + "b\n" * (count % 5) for count in range(1, 30)]
    texts = TEXTS + random_texts(300, seed=3) + ["x <think> y<think>", *runs]
    assert any(processor.is_byte(token_id) for text in texts for token_id in processor.encode(text))
    for text in texts:
        ids = processor.encode(text)
        assert tokenizer.encode(text) == ids, text
        assert tokenizer.decode(ids) == text
