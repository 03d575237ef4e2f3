"""From the tools of a request to what its answer may call, the grammar that holds it to that, and whether it did."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from medusakit.engine.events import GenerationResult
from medusakit.errors import FormError, MissingExtraError, TokenizerError
from medusakit.server.errors import bad_request
from medusakit.server.service import Options, Serving
from medusakit.server.tools import AllowedTools, NamedFunction, Tool, ToolChoice
from medusakit.server.wire import ChatRequest
from medusakit.text.call_formats import BY_NAME, CallFormat, format_of
from medusakit.text.call_reader import CallReader
from medusakit.text.chat import knows_tools
from medusakit.text.thoughts import thought_of
from medusakit.verify.arguments import NO_ARGUMENTS, Function
from medusakit.verify.calls import Calling, UncallableError, call_grammar
from medusakit.verify.grammar import MAX_NESTING, Grammar, nesting

END_TOKENS = 16  # of a prompt: more than an opened or an empty thought, even of a vocabulary of bytes


def calling_of(request: ChatRequest, serving: Serving, options: Options) -> Calling | None:
    """None: no function may be called. Raises ApiError for tools that cannot be meant, or that the model cannot use."""
    tools, choice = request.tools or [], request.tool_choice or "auto"
    _check(tools)
    if not tools and choice not in ("none", "auto"):
        raise bad_request("invalid_value", "tool_choice asks for a call, but there are no tools", "tool_choice")
    if not tools or choice == "none":
        return None
    several = request.parallel_tool_calls is not False and not isinstance(choice, NamedFunction)
    functions = tuple(_function(tool, _place(request, tool)) for tool in _chosen(tools, choice))
    free = choice == "auto" or (isinstance(choice, AllowedTools) and choice.allowed_tools.mode == "auto")
    return Calling(_format(serving, options), functions, free, several, _document(request))


def with_thought(calling: Calling, serving: Serving, prompt: Sequence[int]) -> Calling:
    """A call that must be may be thought of first, where the model does so. prompt: token ids."""
    template = serving.tokenizer.tool_template
    if calling.free or template is None or not calling.form.marker:
        return calling
    end = b"".join(map(serving.tokenizer.token_bytes, prompt[-END_TOKENS:]))
    return replace(calling, thought=thought_of(template, end.decode("utf-8", "replace")))


def grammar_of(calling: Calling, request: ChatRequest, serving: Serving) -> Grammar:
    """Raises ApiError for schemas that cannot be followed. Takes a while."""
    if serving.grammars is None:
        raise bad_request("unsupported_parameter", "tools are not supported here", "tools")
    try:
        return call_grammar(serving.grammars, calling)
    except UncallableError as error:
        name = calling.functions[error.place].name
        (tool,) = (tool for tool in request.tools or () if tool.function.name == name)
        param = _place(request, tool) + ".parameters"
        raise bad_request(error.code, f"{param}: {error.message}", param) from None
    except FormError as error:
        raise bad_request(error.code, error.message, "tools") from None
    except MissingExtraError as error:
        raise bad_request("unsupported_parameter", f"tools: {error.message}", "tools") from None


def reader_of(calling: Calling) -> CallReader:
    return CallReader(calling.form, {function.name: function.parameters for function in calling.functions})


def finish_reason(result: GenerationResult, reader: CallReader | None) -> str:
    """reader: has read all of the answer; None: it is text. A call that was cut off, by its length or by a stop string,
    is none to be made."""
    called = reader is not None and reader.complete and result.finish_reason == "stop"
    return "tool_calls" if called else result.finish_reason


def ending(calling: Calling | None, result: GenerationResult) -> str:
    """Why an answer ended, in OpenAI's words."""
    if calling is None or result.finish_reason != "stop":
        return result.finish_reason
    reader = reader_of(calling)
    reader.feed(result.text)
    return finish_reason(result, reader)


def _check(tools: list[Tool]) -> None:
    seen: set[str] = set()
    for place, tool in enumerate(tools):
        name = tool.function.name
        if name in seen:
            param = f"tools.{place}.function.name"
            raise bad_request("invalid_value", f"{param}: there is a tool {name!r} before", param)
        seen.add(name)
        if nesting(tool.function.parameters) > MAX_NESTING:
            param = f"tools.{place}.function.parameters"
            raise bad_request("invalid_schema", f"{param}: it is nested more than {MAX_NESTING} deep", param)


def _chosen(tools: list[Tool], choice: ToolChoice) -> list[Tool]:
    """Those that may be called. Raises ApiError for a name that none of them has."""
    if isinstance(choice, str):
        return tools
    named = choice.allowed_tools.tools if isinstance(choice, AllowedTools) else [choice]
    known = {tool.function.name for tool in tools}
    for one in named:
        if one.function.name not in known:
            message = f"tool_choice names the function {one.function.name[:64]!r}, which is not among the tools"
            raise bad_request("invalid_value", message, "tool_choice")
    names = {one.function.name for one in named}
    return [tool for tool in tools if tool.function.name in names]


def _place(request: ChatRequest, tool: Tool) -> str:
    return f"tools.{(request.tools or []).index(tool)}.function"


def _function(tool: Tool, place: str) -> Function:
    given = tool.function.parameters
    schema = {"type": "object", **given} if given else NO_ARGUMENTS
    if schema["type"] != "object":
        param = f"{place}.parameters"
        message = f"{param}: arguments are an object, but the schema's type is {str(schema['type'])[:40]!r}"
        raise bad_request("invalid_schema", message, param)
    return Function(tool.function.name, schema, bool(tool.function.strict))


def _format(serving: Serving, options: Options) -> CallFormat:
    model, template = serving.card.name, serving.tokenizer.tool_template
    try:
        known = knows_tools(serving.tokenizer)
    except TokenizerError as error:
        raise bad_request("unsupported_parameter", error.message, "tools") from None
    if template is None or not known:
        message = f"the chat template of {model} knows no tools; one that does: medusa serve --chat-template FILE"
        raise bad_request("unsupported_parameter", message, "tools")
    found = format_of(template) if options.tool_format is None else BY_NAME[options.tool_format]
    if found is None:
        names = ", ".join(BY_NAME)
        message = (
            f"how {model} writes calls cannot be told from its chat template; where it is one of {names}: "
            "medusa serve --tool-format NAME"
        )
        raise bad_request("unsupported_parameter", message, "tools")
    return found


def _document(request: ChatRequest) -> Mapping[str, Any] | None:
    """The form of an answer that calls nothing; `response_format` has been checked."""
    wished = request.response_format
    if wished is None or wished.type == "text":
        return None
    return wished.json_schema.schema_ if wished.json_schema else {"type": "object"}
