"""The messages of a conversation: as requests hold them, and as chat templates know them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Annotated, Any, Literal

from medusakit.server.errors import bad_request
from medusakit.server.strict import FIRST, Wire, has_surrogate
from medusakit.verify.grammar import MAX_NESTING, nesting


class TextPart(Wire):
    type: Literal["text"]
    text: str


class CalledFunction(Wire):
    """arguments: JSON, as text."""

    name: str
    arguments: str


class ToolCall(Wire):
    """A call that the model made before."""

    ignored = frozenset({"index"})
    id: str
    type: Literal["function"] = "function"
    function: CalledFunction


class Message(Wire):
    """content: a text, or parts of it, which are joined. tool_calls: of the assistant's. tool_call_id: the call whose
    result this is."""

    ignored = frozenset({"annotations"})
    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | Annotated[list[TextPart], FIRST] | None = None
    name: str | None = None
    tool_calls: Annotated[list[ToolCall], FIRST] | None = None
    tool_call_id: str | None = None

    @property
    def text(self) -> str | None:
        if self.content is None or isinstance(self.content, str):
            return self.content
        return "".join(part.text for part in self.content)


def plain_messages(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """As chat templates know them. Raises ApiError for calls and results that do not belong together."""
    called: dict[str, str] = {}  # names by the ids of calls
    return [_plain(message, f"messages.{place}", called) for place, message in enumerate(messages)]


def _plain(message: Message, place: str, called: dict[str, str]) -> dict[str, Any]:
    if message.text is None and not message.tool_calls:
        raise bad_request("missing_parameter", f"{place}.content: it is required", f"{place}.content")
    found: dict[str, Any] = {
        "role": "system" if message.role == "developer" else message.role,
        "content": message.text or "",
    }
    name = message.name or _answered(message, place, called)
    if message.tool_calls:
        found["tool_calls"] = _calls(message, message.tool_calls, f"{place}.tool_calls", called)
    if message.tool_call_id is not None:
        found["tool_call_id"] = message.tool_call_id
    return found | ({"name": name} if name else {})


def _calls(message: Message, calls: Sequence[ToolCall], place: str, called: dict[str, str]) -> list[dict[str, Any]]:
    if message.role != "assistant":
        raise bad_request("invalid_value", f"{place}: only the assistant calls, this is of {message.role!r}", place)
    found = []
    for index, call in enumerate(calls):
        called[call.id] = call.function.name
        arguments = _arguments(call.function.arguments, f"{place}.{index}.function.arguments")
        function = {"name": call.function.name, "arguments": arguments}
        found.append({"id": call.id, "type": "function", "function": function})
    return found


def _arguments(text: str, place: str) -> dict[str, Any]:
    """Requests hold them as text, templates take them as an object."""
    try:
        found = json.loads(text or "{}")
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict) or nesting(found) > MAX_NESTING:
        raise bad_request("invalid_value", f"{place}: {text[:60]!r} is not a JSON object", place)
    if has_surrogate(found):
        raise bad_request("invalid_value", f"{place}: it holds a lone surrogate, which is no text", place)
    return found


def _answered(message: Message, place: str, called: dict[str, str]) -> str | None:
    """The function whose result the message is. Clients only give the call's id; some templates want the name."""
    place = f"{place}.tool_call_id"
    if message.role != "tool":
        if message.tool_call_id is not None:
            raise bad_request("invalid_value", f"{place}: it goes with the role 'tool' only", place)
        return None
    if message.tool_call_id is None:
        raise bad_request("missing_parameter", f"{place}: it is required", place)
    if message.tool_call_id not in called:
        raise bad_request("invalid_value", f"{place}: no call before has the id {message.tool_call_id[:60]!r}", place)
    return called[message.tool_call_id]
