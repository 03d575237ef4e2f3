"""Every pre-tokenizer kind against two statements of its rule that share nothing with ours.

PUBLISHED is the `pre_tokenizer` (and normalisation) of a model's own tokenizer.json. PATTERNS states the same cuts as
regular expressions for the `regex` package, which does not belong to the `tokenizers` library.
"""

from __future__ import annotations

import json
import unicodedata

import pytest
import regex
from tokenizers import Tokenizer as Backend
from tokenizers import models, normalizers, pre_tokenizers

from medusakit.errors import TokenizerError
from medusakit.text.gguf import vocabulary_from_gguf
from medusakit.text.split import RULES, split_rule
from medusakit.text.tokenizer import Tokenizer
from vocabularies import TEXTS, byte_level_metadata, pre_tokenizer_of, random_texts

BYTES = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
GPT2 = BYTES | {"use_regex": True}
DIGITS = {"type": "Digits", "individual_digits": True}


def cut(pattern: str) -> dict[str, object]:
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}


LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
QWEN2 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
TEKKEN = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
    r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
GPT4O = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
DEEPSEEK3 = (
    r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*"""
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
CODER = [cut("[\r\n]"), cut(r"\s?\p{L}+"), cut(r"\s?\p{P}+"), cut("[一-龥ࠀ-一가-퟿]+"), DIGITS, BYTES]
FALCON = [
    {"type": "Punctuation", "behavior": "Contiguous"},
    GPT2,
    {"type": "Digits", "individual_digits": False},
    cut("[0-9][0-9][0-9]"),
]
HAN_KANA = "[一-龥\u3040-ゟ゠-ヿ]+"

PUBLISHED: dict[str, list[dict[str, object]]] = {
    "gpt-2": [GPT2],
    "phi-2": [GPT2],
    "smollm": [DIGITS, GPT2],
    "starcoder": [DIGITS, GPT2],
    "refact": [DIGITS, GPT2],
    "codeshell": [DIGITS, GPT2],
    "command-r": [DIGITS, GPT2],
    "llama3": [cut(LLAMA3), BYTES],
    "llama-v3": [cut(LLAMA3), BYTES],
    "llama-bpe": [cut(LLAMA3), BYTES],
    "falcon3": [cut(LLAMA3), BYTES],
    "dbrx": [cut(LLAMA3), BYTES],
    "smaug-bpe": [cut(LLAMA3), BYTES],
    "gpt-4o": [cut(GPT4O), BYTES],
    "llama4": [cut(GPT4O), BYTES],
    "tekken": [cut(TEKKEN), BYTES],
    "qwen2": [cut(QWEN2), BYTES],
    "deepseek-r1-qwen": [cut(QWEN2), BYTES],
    "deepseek-coder": CODER,
    "deepseek-v3": [cut(r"\p{N}{1,3}"), cut(HAN_KANA), cut(DEEPSEEK3), BYTES],
    "falcon": FALCON,
}
NFC = {"qwen2", "deepseek-r1-qwen", "command-r"}
WHOLE_WORDS = {"llama3", "llama-v3", "llama-bpe", "falcon3", "tekken"}

WORDS = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
PATTERNS: dict[str, list[str]] = {
    "gpt-2": [WORDS],
    "smollm": [r"\p{N}", WORDS],
    "llama-bpe": [LLAMA3],
    "gpt-4o": [GPT4O],
    "tekken": [TEKKEN],
    "qwen2": [QWEN2],
    "deepseek-coder": ["[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", "[一-龥ࠀ-一가-퟿]+", r"\p{N}"],
    "deepseek-v3": [r"\p{N}{1,3}", HAN_KANA, DEEPSEEK3],
    "default": [r"[\p{P}$+<=>^~|]+", WORDS, r"\p{N}+", "[0-9][0-9][0-9]"],
}

CORPUS = TEXTS + random_texts(400, seed=7)


def stages(rule: list[dict[str, object]]) -> str:
    return json.dumps({"type": "Sequence", "pretokenizers": rule})


def published(kind: str, metadata: dict[str, object]) -> Backend:
    """What the model's own tokenizer.json would build from the same pieces and merges."""
    texts = metadata["tokenizer.ggml.tokens"]
    merges = metadata["tokenizer.ggml.merges"]
    assert isinstance(texts, list) and isinstance(merges, list)
    vocab = {text: token_id for token_id, text in enumerate(texts)}
    pairs = [tuple(merge.split(" ")) for merge in merges]
    backend = Backend(models.BPE(vocab, pairs, ignore_merges=kind in WHOLE_WORDS))
    backend.pre_tokenizer = pre_tokenizer_of(stages(PUBLISHED[kind]))
    if kind in NFC:
        backend.normalizer = normalizers.NFC()
    return backend


@pytest.mark.parametrize("kind", PUBLISHED)
def test_encodes_like_the_published_tokenizer(kind: str) -> None:
    metadata = byte_level_metadata(kind, stages(PUBLISHED[kind]), nfc=kind in NFC)
    ours, theirs = Tokenizer(vocabulary_from_gguf(metadata)), published(kind, metadata)
    for text in CORPUS:
        assert ours.encode(text) == theirs.encode(text, add_special_tokens=False).ids, (kind, text)


@pytest.mark.parametrize("kind", sorted(set(RULES) - {"deepseek-llm", "default"}))
def test_every_rule_has_a_published_statement(kind: str) -> None:
    assert kind in PUBLISHED


@pytest.mark.parametrize("kind", PATTERNS)
def test_cuts_like_the_regular_expressions(kind: str) -> None:
    pre_tokenizer = split_rule(kind).pre_tokenizer()
    for text in CORPUS:
        text = unicodedata.normalize("NFC", text) if kind in NFC else text
        assert cuts_of(pre_tokenizer, text) == regex_cuts(PATTERNS[kind], text), (kind, text)


def cuts_of(pre_tokenizer: pre_tokenizers.PreTokenizer, text: str) -> list[str]:
    return [text[start:end] for _, (start, end) in pre_tokenizer.pre_tokenize_str(text)]


def regex_cuts(patterns: list[str], text: str) -> list[str]:
    """Each pattern cuts what the one before left; what it does not match stays one stretch."""
    parts = [text] if text else []
    for pattern in patterns:
        parts = [piece for part in parts for piece in isolate(pattern, part)]
    return parts


def isolate(pattern: str, text: str) -> list[str]:
    pieces, done = [], 0
    for match in regex.finditer(pattern, text):
        pieces += [text[done : match.start()], match.group()]
        done = match.end()
    return [piece for piece in [*pieces, text[done:]] if piece]


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("Hello world 12", ["Hello", " world", " ", "1", "2"]),
        ("你好, мир!\n", ["你好", ",", " мир", "!", "\n"]),
        ("x = 3", ["x", " =", " ", "3"]),
        ("end  ", ["end", "  "]),
    ],
)
def test_deepseek_llm(text: str, pieces: list[str]) -> None:
    """Its published pattern lists letters with case one by one, so examples stand in for a second statement."""
    assert cuts_of(split_rule("deepseek-llm").pre_tokenizer(), text) == pieces


def test_an_unknown_kind_is_refused_with_the_list() -> None:
    with pytest.raises(TokenizerError, match=r"'smolm'.*command-r.*llama-bpe.*nearest: smollm"):
        split_rule("smolm")


def test_a_kind_changes_the_ids() -> None:
    """Guards the tests above against a vocabulary on which every rule agrees."""
    metadata = byte_level_metadata("qwen2", stages(PUBLISHED["qwen2"]), nfc=True)
    as_qwen2 = Tokenizer(vocabulary_from_gguf(metadata))
    as_gpt2 = Tokenizer(vocabulary_from_gguf(metadata | {"tokenizer.ggml.pre": "gpt-2"}))
    assert sum(as_qwen2.encode(text) != as_gpt2.encode(text) for text in CORPUS) > 40
