"""A tokenizer from a Hugging Face folder: tokenizer.json and the small files beside it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer

from medusakit.errors import FETCH_AGAIN, OTHER_MODEL, TokenizerError
from medusakit.text.pieces import Pieces, Spelling
from medusakit.text.vocabulary import ControlToken, Vocabulary, answer_ends

_NAMES = ("bos_token", "eos_token", "unk_token", "pad_token")
_PROBE = "a"


def vocabulary_from_folder(folder: Path) -> Vocabulary:
    """Raises TokenizerError where tokenizer.json is missing, damaged, or of a kind that cannot be decoded exactly."""
    backend = _backend(folder / "tokenizer.json")
    config = _json(folder / "special_tokens_map.json") | _json(folder / "tokenizer_config.json")
    added = backend.get_added_tokens_decoder()
    spelling, space_prefix = _spelling(backend, folder)
    control = tuple(_control_token(token_id, token) for token_id, token in added.items() if token.special)
    # text that looks like a control token stays text; control.py cuts at the real ones
    prefix_ids, suffix_ids = _around(backend, config)
    backend.encode_special_tokens = True
    literal = (token_id for token_id, token in added.items() if spelling == "byte_level" or token.special)
    names = {name: text for name in _NAMES if (text := _text(config.get(name))) is not None}
    bos = backend.token_to_id(names["bos_token"]) if "bos_token" in names else None
    return Vocabulary(
        backend=backend,
        pieces=Pieces(_texts(backend), spelling, frozenset(literal)),
        control=control,
        eos_ids=answer_ends(control) | frozenset(_eos_ids(backend, folder, names)),
        bos_id=bos,
        prefix_ids=prefix_ids,
        suffix_ids=suffix_ids,
        space_prefix=space_prefix,
        chat_template=_chat_template(folder, config),
        tool_template=_named_templates(config).get("tool_use"),
        names=names,
    )


def _backend(path: Path) -> Tokenizer:
    if not path.is_file():
        raise TokenizerError(
            f"{path.parent} has no tokenizer.json", hint="save it with transformers' AutoTokenizer.save_pretrained"
        )
    try:
        backend = Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises bare Exception
        raise TokenizerError(f"{path} cannot be read: {error}", hint="download the file again") from None
    backend.no_truncation()
    backend.no_padding()
    return backend


def _json(path: Path) -> dict[str, Any]:
    """A JSON object, {} if the file is missing."""
    if not path.is_file():
        return {}
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise TokenizerError(f"{path} is not JSON: {error}", hint="download the file again") from None
    if not isinstance(value, dict):
        raise TokenizerError(
            f"{path} holds a {type(value).__name__}, expected a JSON object",
            hint=FETCH_AGAIN,
        )
    return value


def _state(part: Any) -> str:
    """A component's JSON, "" for none. Cheaper than reading tokenizer.json, which holds the whole vocabulary."""
    return "" if part is None else part.__getstate__().decode("utf-8")


def _spelling(backend: Tokenizer, folder: Path) -> tuple[Spelling, bool]:
    """How pieces are spelled, and whether decoding takes one leading space away."""
    decoder = _state(backend.decoder)
    if '"ByteLevel"' in decoder:
        return "byte_level", False
    if '"ByteFallback"' in decoder or '"Metaspace"' in decoder:
        stripped = '"Strip"' in decoder or ('"Metaspace"' in decoder and '"never"' not in decoder)
        return "spm", stripped
    kind = json.loads(decoder)["type"] if decoder else "none"
    raise TokenizerError(
        f"{folder}: the decoder in tokenizer.json is {kind}; known: byte-level BPE and SentencePiece (Metaspace, "
        "ByteFallback)",
        hint=OTHER_MODEL,
    )


def _texts(backend: Tokenizer) -> list[str]:
    """Pieces in id order; "" for ids that the vocabulary leaves out."""
    vocab = backend.get_vocab(with_added_tokens=True)
    texts = [""] * (max(vocab.values(), default=-1) + 1)
    for text, token_id in vocab.items():
        texts[token_id] = text
    return texts


def _control_token(token_id: int, token: AddedToken) -> ControlToken:
    return ControlToken(token_id, token.content, strips_left=token.lstrip, strips_right=token.rstrip)


def _around(backend: Tokenizer, config: Mapping[str, Any]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """(prefix, suffix) of the post-processor; the config's add_bos_token and add_eos_token overrule it."""
    plain = backend.encode(_PROBE, add_special_tokens=False).ids
    full = backend.encode(_PROBE, add_special_tokens=True).ids
    start = next((at for at in range(len(full)) if full[at : at + len(plain)] == plain), 0)
    prefix, suffix = tuple(full[:start]), tuple(full[start + len(plain) :])
    return _overruled(backend, config, "bos", prefix), _overruled(backend, config, "eos", suffix)


def _overruled(backend: Tokenizer, config: Mapping[str, Any], name: str, found: tuple[int, ...]) -> tuple[int, ...]:
    wanted = config.get(f"add_{name}_token")
    if wanted is None:
        return found
    text = _text(config.get(f"{name}_token"))
    token_id = None if text is None else backend.token_to_id(text)
    return (token_id,) if wanted and token_id is not None else ()


def _text(token: object) -> str | None:
    """A token as the config files write it: a string, or an object with its content."""
    content = token.get("content") if isinstance(token, dict) else token
    return content if isinstance(content, str) else None


def _eos_ids(backend: Tokenizer, folder: Path, names: Mapping[str, str]) -> Iterator[int]:
    for file in ("generation_config.json", "config.json"):
        ids = _json(folder / file).get("eos_token_id")
        yield from (token_id for token_id in _as_list(ids) if isinstance(token_id, int))
    named = backend.token_to_id(names["eos_token"]) if "eos_token" in names else None
    if named is not None:
        yield named


def _as_list(value: object) -> Iterable[object]:
    return value if isinstance(value, list) else [value]


def _chat_template(folder: Path, config: Mapping[str, Any]) -> str | None:
    """chat_template.jinja, or the config's: one text, or a list of named ones of which `default` is taken."""
    file = folder / "chat_template.jinja"
    if file.is_file():
        return file.read_text(encoding="utf-8")
    template = config.get("chat_template")
    return template if isinstance(template, str) else _named_templates(config).get("default")


def _named_templates(config: Mapping[str, Any]) -> dict[str, str]:
    entries = config.get("chat_template")
    named = [entry for entry in entries if isinstance(entry, dict)] if isinstance(entries, list) else []
    pairs = ((entry.get("name"), entry.get("template")) for entry in named)
    return {name: text for name, text in pairs if isinstance(name, str) and isinstance(text, str)}
