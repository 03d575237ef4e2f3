"""Messages to a prompt, through the model's own chat template.

What a person wrote cannot act as a control token. Before rendering, every control token spelled in a message is broken
by a private character; after the rendered text has been cut at control tokens, that character is taken out again. So
`<|im_end|>` in a message reaches the model as the characters it is written with, and only the template opens and ends
turns. (A token that the template and a message spell together is not caught; no known template ends in half a token.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from jinja2 import TemplateError

from medusakit.errors import TokenizerError, UsageError
from medusakit.text.template import TemplateRefusal, render, variables_of
from medusakit.text.tokenizer import Tokenizer

Message = Mapping[str, Any]
_PRIVATE = range(0xF0000, 0xFFFFE)  # private use: 65,534 characters, so one is always free


def render_chat(
    tokenizer: Tokenizer,
    messages: Sequence[Message],
    *,
    add_generation_prompt: bool = True,
    tools: Sequence[Mapping[str, Any]] | None = None,
    variables: Mapping[str, Any] | None = None,
) -> str:
    """The prompt as text, for people to read. `chat_ids` gives what the model should read.

    tools      JSON schemas of functions, for templates that know tools
    variables  further names the template may use (enable_thinking, ...)
    Raises TokenizerError if the model has no template, or its template fails, refuses the messages or does not end.
    """
    plain = [_message(message) for message in messages]
    return _render(tokenizer, plain, add_generation_prompt, _plain(tools), variables or {})


def chat_ids(
    tokenizer: Tokenizer,
    messages: Sequence[Message],
    *,
    add_generation_prompt: bool = True,
    tools: Sequence[Mapping[str, Any]] | None = None,
    variables: Mapping[str, Any] | None = None,
) -> list[int]:
    """Token ids of the prompt. The template writes bos where the model wants it; nothing is added around."""
    plain, plain_tools = [_message(message) for message in messages], _plain(tools)
    mark = _free_character([plain, plain_tools])

    def guard(text: str) -> str:
        return tokenizer.control.guard(text, mark)

    guarded = [_map_strings(message, guard) for message in plain]
    text = _render(tokenizer, guarded, add_generation_prompt, _map_strings(plain_tools, guard), variables or {})
    ids: list[int] = []
    for part in tokenizer.control.split(text):
        ids += [part] if isinstance(part, int) else tokenizer.encode(part.replace(mark, ""))
    return ids


def conversation_ids(tokenizer: Tokenizer, turns: Sequence[str], answers: Sequence[Sequence[int]]) -> list[int]:
    """The prompt of a conversation's next answer: the user's `turns` with the model's answers to all but the last
    between them, as text. answers: token ids; those that only end an answer are left out.
    """
    messages = [{"role": "user", "content": turns[0]}]
    for ids, turn in zip(answers, turns[1:], strict=True):
        said = tokenizer.decode([token for token in ids if token not in tokenizer.eos_ids])
        messages += [{"role": "assistant", "content": said}, {"role": "user", "content": turn}]
    return chat_ids(tokenizer, messages)


def knows_tools(tokenizer: Tokenizer) -> bool:
    """Whether the model's chat template shows it tools. Raises TokenizerError for one that cannot be read."""
    try:
        return "tools" in variables_of(tokenizer.tool_template or "")
    except TemplateError as error:
        raise _failure(error) from None


def read_template(path: Path) -> str:
    """A chat template from a file. Raises UsageError."""
    try:
        source = path.read_text(encoding="utf-8")
        variables_of(source)
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"chat template {path} cannot be read: {error}", hint="a file of jinja text") from None
    except TemplateError as error:
        raise UsageError(f"chat template {path} is no jinja: {error}", hint="a file of jinja text") from None
    return source


def _render(
    tokenizer: Tokenizer, messages: list[Any], add_generation_prompt: bool, tools: Any, variables: Mapping[str, Any]
) -> str:
    source = tokenizer.chat_template if tools is None else tokenizer.tool_template
    if source is None:
        raise TokenizerError(
            "the model has no chat template: it was published to continue text, not to answer",
            hint='give it a text to continue: medusa run --raw "Once upon a time"',
        )
    given = {
        **tokenizer.names,
        "messages": messages,
        "tools": tools,
        "documents": None,
        "add_generation_prompt": add_generation_prompt,
        **variables,
    }
    try:
        return render(source, given)
    except TemplateRefusal as refusal:
        raise TokenizerError(
            f"the model's chat template refuses these messages: {refusal.message}",
            hint="medusa run --raw PROMPT   leaves the template out",
        ) from None
    except RecursionError:
        raise TokenizerError(
            "the model's chat template does not end: it calls itself without limit",
            hint="medusa run --raw PROMPT   leaves the template out",
        ) from None
    except (TemplateError, TypeError, ValueError, LookupError, ArithmeticError, AttributeError) as error:
        raise _failure(error) from None


def _failure(error: Exception) -> TokenizerError:
    return TokenizerError(
        f"the model's chat template fails: {type(error).__name__}: {error}",
        hint="medusa run --raw PROMPT   leaves the template out",
    )


def _message(message: Message) -> dict[str, Any]:
    """In plain JSON types, without keys that have no value: templates would write "None". Inside tools and arguments
    a null says something, and stays."""
    return {str(key): _plain(item) for key, item in message.items() if item is not None}


def _plain(value: Any) -> Any:
    """A fresh copy in plain JSON types."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, str) or not isinstance(value, Sequence):
        return value
    return [_plain(item) for item in value]


def _map_strings(value: Any, change: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return change(value)
    if isinstance(value, dict):
        return {change(key): _map_strings(item, change) for key, item in value.items()}
    return [_map_strings(item, change) for item in value] if isinstance(value, list) else value


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for item in value:
            yield from _strings(item)
        for item in value.values() if isinstance(value, dict) else ():
            yield from _strings(item)


def _free_character(values: Any) -> str:
    used = {char for text in _strings(values) for char in text if ord(char) in _PRIVATE}
    return next(char for char in map(chr, _PRIVATE) if char not in used)
