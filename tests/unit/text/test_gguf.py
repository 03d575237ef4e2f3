from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from medusakit.errors import TokenizerError
from medusakit.text.gguf import vocabulary_from_gguf
from medusakit.text.tokenizer import Tokenizer
from vocabularies import CONTROL, NORMAL, byte_metadata, spm_metadata


def tokenizer(metadata: dict[str, Any]) -> Tokenizer:
    return Tokenizer(vocabulary_from_gguf(metadata))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"tokenizer.ggml.tokens": None}, "has no vocabulary"),
        ({"tokenizer.ggml.tokens": []}, "has no vocabulary"),
        ({"tokenizer.ggml.model": "bert"}, "model is 'bert'.*known: gpt2.*llama"),
        ({"tokenizer.ggml.model": None}, "model is None"),
        ({"tokenizer.ggml.pre": "klingon"}, "pre-tokenizer is 'klingon'.*known: .*qwen2"),
        ({"tokenizer.ggml.merges": None}, "has no merges"),
        ({"tokenizer.ggml.merges": ["t h", "the"]}, "entry 'the'"),
        ({"tokenizer.ggml.merges": ["t qq"]}, "do not fit together"),
        ({"tokenizer.ggml.token_type": [NORMAL, NORMAL]}, "token_type has 2 entries, but the vocabulary 261"),
    ],
)
def test_damage_is_named(change: dict[str, Any], message: str) -> None:
    with pytest.raises(TokenizerError, match=message):
        vocabulary_from_gguf(byte_metadata() | change)


def test_sentencepiece_needs_scores() -> None:
    with pytest.raises(TokenizerError, match="has no scores"):
        vocabulary_from_gguf(spm_metadata() | {"tokenizer.ggml.scores": None})


def test_arrays_may_be_numpys() -> None:
    """models/ reads numeric arrays as NumPy's."""
    metadata = spm_metadata()
    as_arrays = metadata | {
        "tokenizer.ggml.scores": np.asarray(metadata["tokenizer.ggml.scores"], np.float32),
        "tokenizer.ggml.token_type": np.asarray(metadata["tokenizer.ggml.token_type"], np.int32),
    }
    assert tokenizer(as_arrays).encode("the thing") == tokenizer(metadata).encode("the thing")


def test_without_a_kind_a_file_gets_the_default_rule() -> None:
    metadata = byte_metadata()
    del metadata["tokenizer.ggml.pre"]
    assert tokenizer(metadata).encode("the") == [257]


def test_ids_that_end_an_answer() -> None:
    """The id that the file names, the end of turn it names, and known chat ends among control tokens only."""
    assert tokenizer(byte_metadata()).eos_ids == {259}
    assert tokenizer(byte_metadata() | {"tokenizer.ggml.eos_token_id": 257}).eos_ids == {257, 259}
    assert tokenizer(byte_metadata() | {"tokenizer.ggml.eot_token_id": 260}).eos_ids == {259, 260}
    assert tokenizer(byte_metadata() | {"tokenizer.ggml.eos_token_id": 999}).eos_ids == {259}
    plain = byte_metadata() | {"tokenizer.ggml.token_type": [NORMAL] * 261, "tokenizer.ggml.eos_token_id": 5}
    assert tokenizer(plain).eos_ids == {5}


@pytest.mark.parametrize(
    ("change", "ids"),
    [
        ({}, [257]),
        ({"tokenizer.ggml.add_bos_token": True}, [258, 257]),
        ({"tokenizer.ggml.pre": "llama-bpe"}, [258, 257]),
        ({"tokenizer.ggml.pre": "llama-bpe", "tokenizer.ggml.add_bos_token": False}, [257]),
        ({"tokenizer.ggml.add_eos_token": True}, [257, 259]),
        ({"tokenizer.ggml.add_bos_token": True, "tokenizer.ggml.bos_token_id": 4000}, [257]),
    ],
)
def test_what_add_special_adds(change: dict[str, Any], ids: list[int]) -> None:
    made = tokenizer(byte_metadata() | change)
    assert made.encode("the", add_special=True) == ids
    assert made.encode("the") == [257]


def test_sentencepiece_begins_with_bos_unless_told_otherwise() -> None:
    assert tokenizer(spm_metadata()).encode("an", add_special=True)[0] == 1
    off = spm_metadata() | {"tokenizer.ggml.add_bos_token": False}
    assert tokenizer(off).encode("an", add_special=True) == tokenizer(off).encode("an")


def test_names_for_templates() -> None:
    assert tokenizer(byte_metadata()).names == {"bos_token": "<|im_start|>", "eos_token": "<|im_end|>"}


def test_phi3_markers_swallow_white_space() -> None:
    """phi-3's tokenizer.json says so of all but three; a GGUF file does not, so the architecture decides."""
    metadata = spm_metadata() | {"general.architecture": "phi3"}
    metadata["tokenizer.ggml.tokens"] = [*metadata["tokenizer.ggml.tokens"], "<|user|>"]
    metadata["tokenizer.ggml.token_type"] = [*metadata["tokenizer.ggml.token_type"], CONTROL]
    metadata["tokenizer.ggml.scores"] = [*metadata["tokenizer.ggml.scores"], 0.0]
    user = len(metadata["tokenizer.ggml.tokens"]) - 1
    made = tokenizer(metadata)
    an = made.encode("an")
    assert made.encode("<|user|>\n an", parse_special=True) == [user, *an]
    assert made.encode("<s>an", parse_special=True) == [1, *an]
    assert made.encode("<s> an", parse_special=True) != [1, *an]
    llama = tokenizer(metadata | {"general.architecture": "llama"})
    assert llama.encode("<|user|>\n an", parse_special=True) != [user, *an]


def test_no_control_token_comes_out_of_merging() -> None:
    """Its score would be the best of all, and `s>` beside `<` would become `<s>`."""
    metadata = spm_metadata()
    for piece in ("<", "s>"):
        metadata["tokenizer.ggml.tokens"] = [*metadata["tokenizer.ggml.tokens"], piece]
        metadata["tokenizer.ggml.token_type"] = [*metadata["tokenizer.ggml.token_type"], NORMAL]
        metadata["tokenizer.ggml.scores"] = [*metadata["tokenizer.ggml.scores"], -50.0]
    made = tokenizer(metadata)
    assert 1 not in made.encode("<s>")
    assert made.decode(made.encode("<s>")) == "<s>"
