"""Small vocabularies and texts for tests of text/, trained here, as a GGUF file's metadata and as tokenizers of ours.

metadata = byte_level_metadata("qwen2", pre_tokenizer, normalizer)    # trained with that pre-tokenizer
tokenizer = byte_tokenizer()       # one token a byte, and <|im_start|>, <|im_end|>, <think>
tokenizer = spm_tokenizer()        # SentencePiece-style with byte fallback and a space prefix
"""

from __future__ import annotations

import json
import random
from functools import lru_cache
from typing import Any

from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers, trainers
from tokenizers import Tokenizer as Backend

from medusakit.text.gguf import vocabulary_from_gguf
from medusakit.text.pieces import BYTE_OF_CHAR, CHAR_OF_BYTE
from medusakit.text.tokenizer import Tokenizer

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, BYTE = 1, 2, 3, 4, 6

TEXTS = [
    "The quick brown fox jumps over 13 lazy dogs, doesn't it? It'LL, we'Ve, they'd!",
    "def main():\n    x = [1, 22, 333, 4444, 55555]\n\n\treturn {'a': x[0] + 0x1F}  # done\r\n\r\n",
    "  leading,   inner    and trailing spaces   \n  \n",
    "Ünïcödé: naïve café, straße; ΑΒΓ αβγ; Привет, мир; שלום; مرحبا ١٢٣; नमस्ते १२३; สวัสดี",
    "你好，世界。日本語のテキスト; 한국어 텍스트",
    "combining: e\u0301 a\u0308\u0323 n\u0303; composed: é ạ̈ ñ; ligature ﬁ; roman Ⅷ; half ½ ² ³; full Ａｂｃ！；",
    "emoji 👍🏽 👨\u200d👩\u200d👧 🏴\U000e0067\U000e0062\U000e007f ❤\ufe0f; maths 𝒳 ∑ ≤ ±",
    "quotes “a” ‘b’ «c»; zero\u200bwidth nbsp\u00a0here",
    "a/b//c\\d; http://example.org/?q=1&r=2#x; $5.00 + 7% ~ `code` ^ | = < > a_b_c --- ... !!! ???",
    "HTTPServer XMLHttpRequest iPhone McDonald's ǅungla \u3000ideographic space\u3000",
    "\n\n\n\t\t \r\r\n x",
    "",
    " ",
    "x",
]


def random_texts(count: int, seed: int = 0) -> list[str]:
    """Mixtures of awkward characters: marks, digits of several scripts, spaces of every kind, joined emoji."""
    rng = random.Random(seed)
    parts = [
        *"aBéßΩя中本한กʼ.,-_/#07½²٣१ \n\t\r",
        "  ",
        "    ",
        "\r\n",
        "'s",
        "'LL",
        "...",
        "\u00a0",
        "\u3000",
        "\u200b",
    ]
    parts += ["e\u0301", "ﬁ", "👍🏽", "👨\u200d👩\u200d👧", "Ⅷ", "𝒳", "<b>", "the", " and", "123", "4567"]
    return ["".join(rng.choice(parts) for _ in range(rng.randint(1, 30))) for _ in range(count)]


@lru_cache(maxsize=64)
def _trained(pre_json: str, nfc: bool) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """(pieces, merges) of a byte-level vocabulary trained on TEXTS, control tokens first."""
    backend = Backend(models.BPE())
    backend.pre_tokenizer = Backend.from_str(_empty(pre_json)).pre_tokenizer
    if nfc:
        backend.normalizer = normalizers.NFC()
    trainer = trainers.BpeTrainer(
        vocab_size=700,
        special_tokens=["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
        initial_alphabet=list(BYTE_OF_CHAR),
        show_progress=False,
    )
    backend.train_from_iterator(TEXTS * 3 + random_texts(300, seed=1), trainer)
    model = json.loads(backend.to_str())["model"]
    pieces = sorted(model["vocab"], key=model["vocab"].get)
    return tuple(pieces), tuple(" ".join(merge) for merge in model["merges"])


def _empty(pre_json: str) -> str:
    """A tokenizer.json without vocabulary, for its pre-tokenizer."""
    model = '{"type":"BPE","vocab":{},"merges":[]}'
    return f'{{"version":"1.0","added_tokens":[],"normalizer":null,"pre_tokenizer":{pre_json},"model":{model}}}'


def pre_tokenizer_of(pre_json: str) -> pre_tokenizers.PreTokenizer:
    """A pre-tokenizer from the JSON that a tokenizer.json holds."""
    return Backend.from_str(_empty(pre_json)).pre_tokenizer


def byte_level_metadata(kind: str, pre_json: str, *, nfc: bool = False) -> dict[str, Any]:
    """GGUF metadata of a vocabulary trained with the given pre-tokenizer and named `kind`."""
    pieces, merges = _trained(pre_json, nfc)
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": kind,
        "tokenizer.ggml.tokens": list(pieces),
        "tokenizer.ggml.token_type": [CONTROL] * 3 + [NORMAL] * (len(pieces) - 3),
        "tokenizer.ggml.merges": list(merges),
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
    }


def byte_metadata() -> dict[str, Any]:
    """One token a byte (ids 0 to 255), then two merged ones, control tokens and a user-defined one."""
    texts = [CHAR_OF_BYTE[byte] for byte in range(256)]
    texts += ["th", "the", "<|im_start|>", "<|im_end|>", "<think>"]
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.tokens": texts,
        "tokenizer.ggml.token_type": [NORMAL] * 258 + [CONTROL, CONTROL, USER_DEFINED],
        "tokenizer.ggml.merges": ["t h", "th e"],
        "tokenizer.ggml.bos_token_id": 258,
        "tokenizer.ggml.eos_token_id": 259,
    }


def byte_tokenizer(**more: Any) -> Tokenizer:
    """`more`: keys on top, without their `tokenizer.`: chat_template="..."."""
    return Tokenizer(vocabulary_from_gguf(byte_metadata() | {f"tokenizer.{key}": value for key, value in more.items()}))


def byte_backend() -> Backend:
    """The vocabulary of `byte_tokenizer`, to be saved as a tokenizer.json."""
    texts = byte_metadata()["tokenizer.ggml.tokens"]
    vocab = {text: token_id for token_id, text in enumerate(texts[:258])}
    backend = Backend(models.BPE(vocab, [("t", "h"), ("th", "e")]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens([AddedToken(text, special=True, normalized=False) for text in texts[258:260]])
    backend.add_tokens([AddedToken("<think>", special=False, normalized=False)])
    return backend


def spm_metadata(*, space_prefix: bool = True) -> dict[str, Any]:
    """<unk> <s> </s>, 256 byte tokens, then pieces by falling score."""
    pieces = ["▁", "▁t", "he", "▁the", "an", "▁a", "in", *"thean", "▁▁", "ing", "é", "中"]
    pieces = list(dict.fromkeys(pieces))
    texts = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *pieces, "\n\n"]
    types = [UNKNOWN, CONTROL, CONTROL, *[BYTE] * 256, *[NORMAL] * len(pieces), USER_DEFINED]
    scores = [0.0] * 259 + [-float(rank) for rank in range(len(pieces))] + [-1000.0]
    return {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": texts,
        "tokenizer.ggml.token_type": types,
        "tokenizer.ggml.scores": scores,
        "tokenizer.ggml.unknown_token_id": 0,
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.add_space_prefix": space_prefix,
    }


def spm_tokenizer(*, space_prefix: bool = True) -> Tokenizer:
    return Tokenizer(vocabulary_from_gguf(spm_metadata(space_prefix=space_prefix)))
