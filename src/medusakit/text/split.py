"""How byte-level vocabularies cut text before merging: the kinds that `tokenizer.ggml.pre` names.

A GGUF file names only the kind. The rules below are those of the `tokenizer.json` that the models of that kind were
published with, normalisation included: qwen2 and command-r compose characters (NFC) first.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from difflib import get_close_matches

from tokenizers import Regex, normalizers, pre_tokenizers

from medusakit.errors import TokenizerError

Stage = Callable[[], pre_tokenizers.PreTokenizer]


@dataclass(frozen=True, slots=True)
class SplitRule:
    """Stages cut what the stage before left. The last one maps bytes to the vocabulary's alphabet.

    whole_words  a stretch that is in the vocabulary as it is becomes that token, without merging
    adds_bos     files of this kind begin a text with bos unless they say otherwise
    """

    stages: tuple[Stage, ...]
    composes: bool = False
    whole_words: bool = False
    adds_bos: bool = False

    def pre_tokenizer(self) -> pre_tokenizers.PreTokenizer:
        return pre_tokenizers.Sequence([stage() for stage in self.stages])

    def normalizer(self) -> normalizers.Normalizer | None:
        return normalizers.NFC() if self.composes else None


def _cut(pattern: str) -> Stage:
    return lambda: pre_tokenizers.Split(Regex(pattern), behavior="isolated")


def _digits() -> pre_tokenizers.PreTokenizer:
    return pre_tokenizers.Digits(individual_digits=True)


def _digit_runs() -> pre_tokenizers.PreTokenizer:
    return pre_tokenizers.Digits(individual_digits=False)


def _punctuation() -> pre_tokenizers.PreTokenizer:
    return pre_tokenizers.Punctuation(behavior="contiguous")


def _gpt2() -> pre_tokenizers.PreTokenizer:
    """GPT-2's pattern, then its byte alphabet."""
    return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)


def _bytes() -> pre_tokenizers.PreTokenizer:
    """The byte alphabet alone."""
    return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)


_ENGLISH = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_UPPER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]"
_LOWER = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_LEAD = r"[^\r\n\p{L}\p{N}]?"

_LLAMA3 = rf"{_ENGLISH}|{_LEAD}\p{{L}}+|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{_SPACES}"
_QWEN2 = rf"{_ENGLISH}|{_LEAD}\p{{L}}+|\p{{N}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{_SPACES}"
_TEKKEN = rf"{_LEAD}{_UPPER}*{_LOWER}+|{_LEAD}{_UPPER}+{_LOWER}*|\p{{N}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{_SPACES}"
_GPT4O = (
    rf"{_LEAD}{_UPPER}*{_LOWER}+{_ENGLISH}?|{_LEAD}{_UPPER}+{_LOWER}*{_ENGLISH}?|\p{{N}}{{1,3}}"
    rf"| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{_SPACES}"
)
_GPT2_WORDS = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)"
_HAN_KANA = "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+"
_HAN_HANGUL = "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"
_DEEPSEEK3 = (
    r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"""
    rf"| ?[\p{{P}}\p{{S}}]+[\r\n]*|{_SPACES}"
)

# the letters with case of the Unicode version that DeepSeek trained with
_CASED = (
    "A-Za-z\u00b5\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u01ba\u01bc-\u01bf\u01c4-\u0293\u0295-\u02af\u0370-\u0373"
    "\u0376\u0377\u037b-\u037d\u037f\u0386\u0388-\u038a\u038c\u038e-\u03a1\u03a3-\u03f5\u03f7-\u0481"
    "\u048a-\u052f\u0531-\u0556\u10a0-\u10c5\u13a0-\u13f5\u13f8-\u13fd\u1c90-\u1cba\u1cbd-\u1cbf\u1d00-\u1d2b"
    "\u1d6b-\u1d77\u1d79-\u1d9a\u1e00-\u1f15\u1f18-\u1f1d\u1f20-\u1f45\u1f48-\u1f4d\u1f50-\u1f57\u1f59\u1f5b"
    "\u1f5d\u1f5f-\u1f7d\u1f80-\u1fb4\u1fb6-\u1fbc\u1fbe\u1fc2-\u1fc4\u1fc6-\u1fcc\u1fd0-\u1fd3\u1fd6-\u1fdb"
    "\u1fe0-\u1fec\u1ff2-\u1ff4\u1ff6-\u1ffc\u2102\u2107\u210a-\u2113\u2115\u2119-\u211d\u2124\u2126\u2128"
    "\u212a-\u212d\u212f-\u2134\u2139\u213c-\u213f\u2145-\u2149\u214e\u2183\u2184\u2c00-\u2c7b\u2c7e-\u2ce4"
    "\u2ceb-\u2cee\u2cf2\u2cf3\ua640-\ua66d\ua680-\ua69b\ua722-\ua76f\ua771-\ua787\ua78b-\ua78e\uab70-\uabbf"
    "\ufb00-\ufb06\ufb13-\ufb17\uff21-\uff3a\uff41-\uff5a\U00010400-\U0001044f\U000104b0-\U000104d3"
    "\U000104d8-\U000104fb\U00010c80-\U00010cb2\U00010cc0-\U00010cf2\U000118a0-\U000118df"
    "\U0001e900-\U0001e943"
)
_MARKS = "!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002"

_GPT2 = SplitRule((_gpt2,))
_SINGLE_DIGITS = SplitRule((_digits, _gpt2))
_LLAMA3_FILES = SplitRule((_cut(_LLAMA3), _bytes), whole_words=True, adds_bos=True)
_CL100K = SplitRule((_cut(_LLAMA3), _bytes))
_QWEN2_FILES = SplitRule((_cut(_QWEN2), _bytes), composes=True)
_DEEPSEEK_LLM = (
    _cut(r"[\r\n]"),
    _cut(rf"\s?[{_CASED}]+"),
    _cut(rf"\s?[{_MARKS}]+"),
    _cut(r"\s+$"),
    _cut(_HAN_HANGUL),
    _digits,
    _bytes,
)
_DEEPSEEK_CODER = (_cut(r"[\r\n]"), _cut(r"\s?\p{L}+"), _cut(r"\s?\p{P}+"), _cut(_HAN_HANGUL), _digits, _bytes)
# what llama.cpp does for files that name no kind: no published tokenizer, but what such files are run with
_UNNAMED = (_cut(r"[\p{P}$+<=>^~|]+"), _cut(_GPT2_WORDS), _cut(r"\p{N}+"), _cut("[0-9][0-9][0-9]"), _bytes)

RULES = {
    "default": SplitRule(_UNNAMED),
    "gpt-2": _GPT2,
    "phi-2": _GPT2,
    "smollm": _SINGLE_DIGITS,
    "starcoder": _SINGLE_DIGITS,
    "refact": _SINGLE_DIGITS,
    "codeshell": _SINGLE_DIGITS,
    "command-r": SplitRule((_digits, _gpt2), composes=True),
    "llama3": _LLAMA3_FILES,
    "llama-v3": _LLAMA3_FILES,
    "llama-bpe": _LLAMA3_FILES,
    "falcon3": _LLAMA3_FILES,
    "dbrx": _CL100K,
    "smaug-bpe": _CL100K,
    "gpt-4o": SplitRule((_cut(_GPT4O), _bytes)),
    "llama4": SplitRule((_cut(_GPT4O), _bytes)),
    "tekken": SplitRule((_cut(_TEKKEN), _bytes), whole_words=True, adds_bos=True),
    "qwen2": _QWEN2_FILES,
    "deepseek-r1-qwen": _QWEN2_FILES,
    "deepseek-llm": SplitRule(_DEEPSEEK_LLM),
    "deepseek-coder": SplitRule(_DEEPSEEK_CODER),
    "deepseek-v3": SplitRule((_cut(r"\p{N}{1,3}"), _cut(_HAN_KANA), _cut(_DEEPSEEK3), _bytes)),
    "falcon": SplitRule((_punctuation, _gpt2, _digit_runs, _cut("[0-9][0-9][0-9]"))),
}


def split_rule(kind: str) -> SplitRule:
    """The rule of a kind. Raises TokenizerError, with the list, for a kind that this version does not know."""
    rule = RULES.get(kind)
    if rule is None:
        near = get_close_matches(kind, RULES, n=1)
        known = ", ".join(sorted(RULES))
        raise TokenizerError(
            f"the file's pre-tokenizer is {kind!r} (tokenizer.ggml.pre), which this version does not know; "
            f"known: {known}" + (f"; nearest: {near[0]}" if near else ""),
            hint="use the model's Hugging Face folder with its tokenizer.json",
        )
    return rule
