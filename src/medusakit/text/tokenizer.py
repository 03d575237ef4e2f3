"""Text to token ids and back, exactly as the model's own files say."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

from medusakit.errors import UsageError
from medusakit.text.control import ControlSplitter
from medusakit.text.folder import vocabulary_from_folder
from medusakit.text.gguf import vocabulary_from_gguf
from medusakit.text.vocabulary import Vocabulary


class ModelFiles(Protocol):
    """Where a model lies: models.resolve.ResolvedModel, of which text/ needs no more than this."""

    @property
    def path(self) -> Path: ...

    @property
    def kind(self) -> str: ...

    def metadata(self) -> Mapping[str, Any]:
        """The key-value pairs of a GGUF file."""
        ...


def load_tokenizer(resolved: ModelFiles) -> Tokenizer:
    """The tokenizer of a GGUF file or a Hugging Face folder. Raises TokenizerError: what is missing or unknown."""
    if resolved.kind == "gguf":
        return Tokenizer(vocabulary_from_gguf(resolved.metadata()))
    return Tokenizer(vocabulary_from_folder(resolved.path))


class Tokenizer:
    """A model's vocabulary at work. Immutable and safe to share between threads.

    Control tokens (`<|im_end|>`) never come out of `encode` unless `parse_special` asks for them: text that a person
    typed cannot end a turn or open another role.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        self._backend = vocabulary.backend
        self._pieces = vocabulary.pieces
        self.control = ControlSplitter(vocabulary.control)
        self.special_ids = frozenset(token.id for token in vocabulary.control)

    @property
    def vocab_size(self) -> int:
        """One more than the largest id. A model's logits may be wider (padding), never narrower."""
        return len(self._pieces)

    @property
    def eos_ids(self) -> frozenset[int]:
        """Every id that ends an answer: those that the files name, and chat-end tokens of known formats."""
        return self._vocabulary.eos_ids

    @property
    def bos_id(self) -> int | None:
        return self._vocabulary.bos_id

    @property
    def space_prefix(self) -> bool:
        """True: encoding puts a space before the text, and decoding takes one away (SentencePiece)."""
        return self._vocabulary.space_prefix

    @property
    def chat_template(self) -> str | None:
        return self._vocabulary.chat_template

    @property
    def tool_template(self) -> str | None:
        """The chat template for conversations with tools; most models have one for all."""
        return self._vocabulary.tool_template or self._vocabulary.chat_template

    def with_template(self, template: str) -> Tokenizer:
        """The same vocabulary with another chat template."""
        return Tokenizer(replace(self._vocabulary, chat_template=template, tool_template=None))

    @property
    def names(self) -> Mapping[str, str]:
        """bos_token, eos_token, unk_token, pad_token where the model has them, for chat templates."""
        return self._vocabulary.names

    @property
    def rules(self) -> str:
        """Normalising, splitting and the vocabulary as JSON of the tokenizers library, without its control tokens."""
        return str(self._backend.to_str())

    @cached_property
    def hash(self) -> str:
        """sha256 hex over pieces and control ids: equal for a GGUF file and a folder of one vocabulary."""
        digest = hashlib.sha256()
        for text in self._pieces.texts:
            digest.update(text.encode("utf-8", "surrogatepass") + b"\0")
        digest.update(",".join(map(str, sorted(self.special_ids))).encode())
        return digest.hexdigest()

    def encode(self, text: str, *, add_special: bool = False, parse_special: bool = False) -> list[int]:
        """Token ids of `text`.

        add_special    bos before and eos after, where the model wants them
        parse_special  control tokens written in the text become their ids: for rendered chat templates, not for user
                       text
        Raises UsageError for text that is not Unicode (a lone surrogate).
        """
        parts = self.control.split(text) if parse_special else [text]
        ids = [token_id for part in parts for token_id in ([part] if isinstance(part, int) else self._plain(part))]
        if not add_special:
            return ids
        return [*self._vocabulary.prefix_ids, *ids, *self._vocabulary.suffix_ids]

    def decode(self, ids: Iterable[int], *, show_special: bool = False) -> str:
        """The text of `ids`. Control tokens have none unless `show_special`, nor have ids beyond the vocabulary, which
        the scores of some models cover; invalid UTF-8 shows as U+FFFD."""
        known = (token_id for token_id in ids if token_id < self.vocab_size)
        shown = (token_id for token_id in known if show_special or token_id not in self.special_ids)
        text = b"".join(map(self.token_bytes, shown)).decode("utf-8", "replace")
        return text.removeprefix(" ") if self.space_prefix else text

    def token_bytes(self, token_id: int) -> bytes:
        """The exact bytes of one token, of a control token its spelling. Raises IndexError for an unknown id."""
        return self._pieces.bytes_of(token_id)

    def piece(self, token_id: int) -> str:
        """The token as the vocabulary spells it."""
        return self._pieces[token_id]

    def _plain(self, text: str) -> list[int]:
        if not text:
            return []
        try:
            return list(self._backend.encode(self._vocabulary.lead + text, add_special_tokens=False).ids)
        except TypeError:
            raise UsageError(
                "the text is not valid Unicode: it holds a lone surrogate",
                hint='text.encode("utf-8", "replace").decode()',
            ) from None
