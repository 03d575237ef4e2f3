"""For tests with requests made up from the OpenAPI document: the server that gets them, what is asked and checked."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis.strategies import SearchStrategy
from schemathesis import Case, GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.core.transport import Response
from schemathesis.specs.openapi.checks import response_schema_conformance, status_code_conformance

from medusakit.server.app import create_app
from medusakit.server.service import Options
from medusakit.server.wire import ErrorReply
from medusakit.settings import SamplingParams
from server_fakes import TEMPLATE
from toy_llm import toy_llm, toy_server

# requests with tools get as far as others; the prompt only tells how many there are, for want of context
KNOWS_TOOLS = "{# <tool_call> with arguments, tool_calls #}{{ tools | length }} tools\n" + TEMPLATE
WAIT_S = 600  # for an answer: a machine with much else to do may stop everything for a minute
CHECKS = [not_a_server_error, response_schema_conformance, status_code_conformance]


@contextmanager
def described() -> Iterator[schemathesis.BaseSchema]:
    """The document of a server, in this process, that answers from a tiny random model: shortly unless a request says
    otherwise."""
    options = Options(defaults=SamplingParams(max_tokens=4), any_model=True)
    llm = toy_llm()
    llm.tokenizer.tool_template = KNOWS_TOOLS  # type: ignore[misc]
    with toy_server(llm, options, max_rows=4) as service:
        yield schemathesis.openapi.from_asgi("/openapi.json", create_app(service))


def ask_all(schema: schemathesis.BaseSchema, examples: int) -> dict[str, Counter[int]]:
    """Of every operation up to so many requests, half of them wrong on purpose where they can be; as many again, made
    right, where there is a body; a tenth where only headers can differ. Raises what an answer did wrong. By operation:
    the statuses, each counted when checked."""
    found: dict[str, Counter[int]] = {}
    for made in schema.get_all_operations():
        operation = made.ok()
        told, wrong = (operation.as_strategy(mode) for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE))
        if operation.body or operation.path_parameters:
            statuses = _ask(told | wrong, examples)
        else:
            statuses = _ask(told, max(1, examples // 10))
        if operation.body:
            statuses += _ask(told.map(_mended), examples)
        found[operation.label] = statuses
    return found


def _ask(cases: SearchStrategy[Case], examples: int) -> Counter[int]:
    statuses: Counter[int] = Counter()

    @seed(1)
    @settings(
        max_examples=examples,
        phases=[Phase.generate],
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(case=cases)
    def ask(case: Case) -> None:
        response = case.call(timeout=WAIT_S)
        case.validate_response(response, checks=CHECKS)
        check_error(response)
        statuses[response.status_code] += 1

    ask()
    return statuses


def _mended(case: Case) -> Case:
    """What the document cannot say, made right, so that more requests come as far as an answer."""
    if isinstance(case.body, dict):
        case.body = _mended_body(case.body)
    return case


def _mended_body(body: dict[str, Any]) -> dict[str, Any]:
    body = {name: int(value) if _is_whole(value) else value for name, value in body.items()}
    for name in ("max_tokens", "max_completion_tokens"):  # the toy context is short
        body |= {name: min(body[name], 8)} if body.get(name) else {}
    body |= {"logprobs": True} if body.get("top_logprobs") is not None else {}
    body |= {"stream": True} if body.get("stream_options") is not None else {}
    if isinstance(body.get("stop"), list):
        body["stop"] = [text for text in body["stop"] if text][:8]
    if isinstance(body.get("logit_bias"), dict):
        values = body["logit_bias"].values()
        body["logit_bias"] = {str(token): max(-100.0, min(100.0, value)) for token, value in enumerate(values)}
    if body.get("medusa"):
        body["medusa"] = {name: int(value) if _is_whole(value) else value for name, value in body["medusa"].items()}
    if body.get("messages"):
        body = {name: value for name, value in body.items() if name != "prompt"}
        return body | {"messages": [_mended_message(message) for message in body["messages"]]}
    if "model" in body and "prompt" not in body:  # a chat
        return body
    return {name: value for name, value in body.items() if name != "messages"} | {
        "prompt": _mended_prompt(body.get("prompt"))
    }


def _is_whole(value: Any) -> bool:
    """JSON knows no other whole numbers, but requests are read strictly."""
    return isinstance(value, float) and value.is_integer()


def _mended_message(message: dict[str, Any]) -> dict[str, Any]:
    """Its own text and none of a call, whose id would have to be known."""
    left = {name: value for name, value in message.items() if name not in ("tool_calls", "tool_call_id")}
    role = "user" if left.get("role") == "tool" else left.get("role")
    return left | {"role": role, "content": left.get("content") or "?"}


def _mended_prompt(prompt: Any) -> Any:
    """Not empty, and ids that the toy vocabulary has."""
    if isinstance(prompt, list):
        return [part % 256 if isinstance(part, int) else _mended_prompt(part) for part in prompt] or [1]
    return prompt or "?"


def check_error(response: Response) -> None:
    """Every refusal is in OpenAI's shape."""
    if response.status_code >= 400:
        error = ErrorReply.model_validate_json(response.content).error
        assert error.message and error.type and error.code
