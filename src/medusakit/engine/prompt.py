"""What may be asked of a model: messages with texts, or token ids. Anything else is refused here, by its place."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from operator import index
from typing import Any

from medusakit.errors import UsageError
from medusakit.text.chat import chat_ids
from medusakit.text.tokenizer import Tokenizer

Message = Mapping[str, str]
Prompt = str | Sequence[Message]


def prompt_ids(tokenizer: Tokenizer, prompt: Prompt, *, raw: bool = False) -> list[int]:
    """Token ids: a text becomes one user message in the model's chat template; `raw`, or where there is no template,
    it is taken as it is. Raises UsageError for a prompt that says nothing or is none."""
    if isinstance(prompt, str):
        if not prompt.strip():
            raise UsageError("the prompt is empty", hint='medusa run "Explain a B-tree in two sentences"')
        if raw or tokenizer.chat_template is None:
            return tokenizer.encode(prompt, add_special=True)
        prompt = [{"role": "user", "content": prompt}]
    check_messages(prompt)
    return chat_ids(tokenizer, prompt)


def check_messages(messages: object) -> None:
    """At least one message with a role, and something said. Raises UsageError."""
    hint = '[{"role": "user", "content": "Explain a B-tree"}]'
    if not isinstance(messages, Sequence) or isinstance(messages, bytes):
        raise UsageError(f"a prompt is a text or a list of messages, got {type(messages).__name__}", hint=hint)
    for place, message in enumerate(messages):
        if not isinstance(message, Mapping) or not isinstance(message.get("role"), str) or "content" not in message:
            raise UsageError(f"a message has a role and a content, got {short(message)} (message {place})", hint=hint)
        content = message["content"]
        if not isinstance(content, str) and not (content is None and message.get("tool_calls")):
            raise UsageError(f"the content of message {place} is {short(content)}, expected a text", hint=hint)
    if not any(message["content"] is None or message["content"].strip() for message in messages):
        raise UsageError("the prompt is empty", hint=hint)


def token_ids(ids: object, vocab_size: int) -> list[int]:
    """`ids` as plain numbers. Raises UsageError naming the first that is no whole number or not in the vocabulary."""
    if isinstance(ids, str | bytes) or not isinstance(ids, Iterable):
        raise UsageError(f"token ids are a list of whole numbers, got {short(ids)}", hint="llm.stream(text)")
    plain = []
    for place, token in enumerate(ids):
        number = _whole_number(token)
        if number is None or not 0 <= number < vocab_size:
            message = f"token id {place} is {short(token)}, expected a whole number from 0 to {vocab_size - 1}"
            raise UsageError(message, hint="the ids that llm.encode(text) gives")
        plain.append(number)
    return plain


def short(value: object) -> str:
    """A value of a wrong type as a message shows it."""
    return f"{repr(value)[:60]} ({type(value).__name__})"


def _whole_number(value: Any) -> int | None:
    """NumPy's count, True and 2.0 do not."""
    try:
        return None if isinstance(value, bool) else index(value)
    except TypeError:
        return None
