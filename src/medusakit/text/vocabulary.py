"""What a model's files say about its tokenizer, in one value, whichever format they came in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import tokenizers

from medusakit.text.pieces import Pieces

# Control tokens that end an answer in the chat formats of the supported families, whatever the file names as its one
# end-of-sequence id.
ANSWER_ENDS = frozenset(
    {
        "<|im_end|>",  # ChatML: qwen, smollm
        "<|endoftext|>",
        "<|eot_id|>",  # llama 3
        "<|eom_id|>",
        "<|end_of_text|>",
        "<end_of_turn>",  # gemma
        "<|end|>",  # phi
        "<\uff5cend\u2581of\u2581sentence\uff5c>",  # deepseek
        "<|EOT|>",
    }
)


@dataclass(frozen=True, slots=True)
class ControlToken:
    """A token that no text can stand for. strips_left, strips_right: white space beside it belongs to it."""

    id: int
    text: str
    strips_left: bool = False
    strips_right: bool = False


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """
    backend        encodes plain text; never matches a control token
    prefix_ids     what `add_special` puts before (bos) and suffix_ids after (eos)
    space_prefix   decoding takes one leading space away, which encoding put there (SentencePiece)
    lead           what to put before a stretch of text, where the backend does not do so itself
    tool_template  a chat template for conversations with tools, where the model has another one for those
    names          bos_token, eos_token, ...: texts that chat templates may use
    """

    backend: tokenizers.Tokenizer
    pieces: Pieces
    control: tuple[ControlToken, ...]
    eos_ids: frozenset[int]
    bos_id: int | None = None
    prefix_ids: tuple[int, ...] = ()
    suffix_ids: tuple[int, ...] = ()
    space_prefix: bool = False
    lead: str = ""
    chat_template: str | None = None
    tool_template: str | None = None
    names: Mapping[str, str] = field(default_factory=dict)


def answer_ends(control: tuple[ControlToken, ...]) -> frozenset[int]:
    """Ids of the control tokens that are known to end an answer."""
    return frozenset(token.id for token in control if token.text in ANSWER_ENDS)
