"""A tokenizer from the metadata of a GGUF file (keys `tokenizer.*`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from tokenizers import AddedToken, Tokenizer, models, normalizers

from medusakit.errors import FETCH_AGAIN, TokenizerError
from medusakit.text.merges import Merge, merges_from_scores
from medusakit.text.pieces import SPACE_MARK, Pieces, Spelling
from medusakit.text.split import split_rule
from medusakit.text.vocabulary import ControlToken, Vocabulary, answer_ends

Metadata = Mapping[str, Any]

_NAMES = {"bos_token": "bos", "eos_token": "eos", "unk_token": "unknown", "pad_token": "padding"}
_END_KEYS = ("eos", "eot", "eom")
# phi-3's markers swallow the white space after them, these excepted; a GGUF file has no place to say so
_PHI3_KEEPS_SPACE = ("<unk>", "<s>", "<|endoftext|>")


class _Type(IntEnum):
    """tokenizer.ggml.token_type"""

    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


@dataclass(frozen=True, slots=True)
class _File:
    """The vocabulary's arrays, checked for equal length, and the keys beside them."""

    metadata: Metadata
    texts: list[str]
    types: list[int]

    def get(self, key: str, default: Any = None) -> Any:
        return self.metadata.get(f"tokenizer.ggml.{key}", default)

    def flag(self, key: str, default: bool) -> bool:
        return bool(self.get(key, default))

    def token_id(self, name: str) -> int | None:
        """The id that `<name>_token_id` names, if the vocabulary has it."""
        token_id = self.get(f"{name}_token_id")
        return int(token_id) if token_id is not None and 0 <= int(token_id) < len(self.texts) else None

    def of_type(self, *types: _Type) -> list[int]:
        return [token_id for token_id, kind in enumerate(self.types) if kind in types]


def vocabulary_from_gguf(metadata: Metadata) -> Vocabulary:
    """Raises TokenizerError for a missing or uneven array, and for a model or pre-tokenizer that is not known."""
    file = _open(metadata)
    model = file.get("model")
    if model == "gpt2":
        return _byte_level(file)
    if model == "llama":
        return _sentencepiece(file)
    raise TokenizerError(
        f"the file's tokenizer model is {model!r} (tokenizer.ggml.model); known: gpt2 (byte-level BPE), "
        "llama (SentencePiece BPE)",
        hint="use the model's Hugging Face folder with its tokenizer.json",
    )


def _open(metadata: Metadata) -> _File:
    texts = metadata.get("tokenizer.ggml.tokens")
    if not isinstance(texts, list) or not texts:
        raise TokenizerError("the file has no vocabulary (tokenizer.ggml.tokens)", hint="download the model again")
    types = _numbers(metadata, "token_type", len(texts)) or [_Type.NORMAL] * len(texts)
    return _File(metadata, texts, types)


def _numbers(metadata: Metadata, key: str, length: int) -> list[Any]:
    """A numeric array (NumPy's or a list) as a list, [] where the file has none."""
    values: Sequence[Any] | None = metadata.get(f"tokenizer.ggml.{key}")
    if values is None:
        return []
    if len(values) != length:
        raise TokenizerError(
            f"tokenizer.ggml.{key} has {len(values)} entries, but the vocabulary {length}",
            hint=FETCH_AGAIN,
        )
    return list(values.tolist()) if hasattr(values, "tolist") else list(values)


def _byte_level(file: _File) -> Vocabulary:
    rule = split_rule(file.get("pre", "default"))
    vocab = {text: token_id for token_id, text in enumerate(file.texts)}
    backend = _bpe(vocab, _merges_of(file), ignore_merges=rule.whole_words)
    backend.pre_tokenizer = rule.pre_tokenizer()
    if (normalizer := rule.normalizer()) is not None:
        backend.normalizer = normalizer
    _add_user_defined(backend, file, file.texts)
    return _vocabulary(file, backend, file.texts, "byte_level", adds_bos=rule.adds_bos)


def _merges_of(file: _File) -> list[Merge]:
    merges = file.get("merges")
    if not isinstance(merges, list):
        raise TokenizerError(
            "the file has no merges (tokenizer.ggml.merges), which a byte-level vocabulary needs",
            hint=FETCH_AGAIN,
        )
    pairs = [tuple(merge.split(" ")) for merge in merges]
    if wrong := next((merge for merge, pair in zip(merges, pairs, strict=True) if len(pair) != 2), None):
        raise TokenizerError(
            f"tokenizer.ggml.merges has the entry {wrong!r}, expected two pieces and a space between",
            hint=FETCH_AGAIN,
        )
    return pairs


def _sentencepiece(file: _File) -> Vocabulary:
    """Text is one stretch, spaces are marked, and what no piece covers falls back to byte tokens."""
    texts = _marked(file)
    vocab = {text: token_id for token_id, text in enumerate(texts)}
    unknown = file.token_id("unknown")
    backend = _bpe(
        vocab,
        _merges_by_score(file, texts),
        byte_fallback=True,
        fuse_unk=True,
        unk_token=None if unknown is None else texts[unknown],
    )
    space_prefix = file.flag("add_space_prefix", True)
    backend.normalizer = normalizers.Replace(" ", SPACE_MARK)
    _add_user_defined(backend, file, texts)
    return _vocabulary(file, backend, texts, "spm", adds_bos=True, space_prefix=space_prefix)


def _marked(file: _File) -> list[str]:
    """Pieces with spaces marked: the converter writes user-defined ones (gemma's runs of spaces) with real spaces."""
    texts = list(file.texts)
    for token_id in file.of_type(_Type.USER_DEFINED):
        texts[token_id] = texts[token_id].replace(" ", SPACE_MARK)
    return texts


def _merges_by_score(file: _File, texts: list[str]) -> list[Merge]:
    scores = _numbers(file.metadata, "scores", len(texts))
    if not scores:
        raise TokenizerError(
            "the file has no scores (tokenizer.ggml.scores), which a SentencePiece vocabulary needs",
            hint=FETCH_AGAIN,
        )
    for token_id in file.of_type(_Type.USER_DEFINED):
        scores[token_id] = 0.0  # what SentencePiece gives them, the best there is; the converter writes -1000
    return merges_from_scores(texts, scores, file.of_type(_Type.NORMAL, _Type.USER_DEFINED))


def _bpe(vocab: dict[str, int], merges: list[Merge], **options: Any) -> Tokenizer:
    try:
        return Tokenizer(models.BPE(vocab, merges, **options))
    except Exception as error:  # the library raises bare Exception
        raise TokenizerError(
            f"the vocabulary and its merges do not fit together: {error}",
            hint=FETCH_AGAIN,
        ) from None


def _add_user_defined(backend: Tokenizer, file: _File, texts: list[str]) -> None:
    """User-defined tokens (`<think>`, gemma's runs of newlines) are whole wherever their text stands."""
    ids = file.of_type(_Type.USER_DEFINED)
    backend.add_tokens([AddedToken(texts[token_id], normalized=False, special=False) for token_id in ids])


def _vocabulary(
    file: _File, backend: Tokenizer, texts: list[str], spelling: Spelling, *, adds_bos: bool, space_prefix: bool = False
) -> Vocabulary:
    control = tuple(_control_token(file, token_id) for token_id in file.of_type(_Type.CONTROL, _Type.UNKNOWN))
    literal_ids = frozenset(file.of_type(_Type.CONTROL, _Type.UNKNOWN, _Type.UNUSED))
    if spelling == "byte_level":
        literal_ids |= frozenset(file.of_type(_Type.USER_DEFINED))
    bos, eos = file.token_id("bos"), file.token_id("eos")
    named = {name: file.token_id(key) for name, key in _NAMES.items()}
    ends = (file.token_id(key) for key in _END_KEYS)
    return Vocabulary(
        backend=backend,
        pieces=Pieces(texts, spelling, literal_ids),
        control=control,
        eos_ids=answer_ends(control) | frozenset(token_id for token_id in ends if token_id is not None),
        bos_id=bos,
        prefix_ids=(bos,) if bos is not None and file.flag("add_bos_token", adds_bos) else (),
        suffix_ids=(eos,) if eos is not None and file.flag("add_eos_token", False) else (),
        space_prefix=space_prefix,
        # not a normaliser of the backend's: that would put one after every user-defined token too
        lead=" " if space_prefix else "",
        chat_template=file.metadata.get("tokenizer.chat_template"),
        tool_template=file.metadata.get("tokenizer.chat_template.tool_use"),
        names={name: texts[token_id] for name, token_id in named.items() if token_id is not None},
    )


def _control_token(file: _File, token_id: int) -> ControlToken:
    text = file.texts[token_id]
    is_phi3 = file.metadata.get("general.architecture") == "phi3" and file.get("model") == "llama"
    return ControlToken(token_id, text, strips_right=is_phi3 and text not in _PHI3_KEEPS_SPACE)
