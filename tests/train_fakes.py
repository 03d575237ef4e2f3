"""A byte tokenizer with a chat template, for tests of training."""

from __future__ import annotations

from collections.abc import Mapping

from fakes import ByteTokenizer
from medusakit.text.control import ControlSplitter

TEMPLATE = (
    "{% for m in messages %}<{{ m['role'] }}>{{ m['content'] }}{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)


class ChatBytes(ByteTokenizer):
    chat_template = TEMPLATE
    control = ControlSplitter(())
    names: Mapping[str, str] = {}
