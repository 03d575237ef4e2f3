"""Functions that the model may call, over HTTP with OpenAI's own client."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx2 as httpx
import openai
import pytest

from fakes import EOS, Script, ScriptedRuntime, SkilledDrafter
from grammar_fakes import CONTROL_MARK, THINK, MarkedTokenizer
from medusakit.engine.controller import FixedController, PlainController
from medusakit.engine.engine import Engine
from medusakit.engine.plan import make_plan
from medusakit.runtimes.reference import random_reference
from medusakit.server.logs import LOGGER
from medusakit.server.service import Options
from medusakit.settings import SamplingParams
from medusakit.text.chat import chat_ids
from medusakit.tree.policy import StaticPolicy
from medusakit.tree.topology import Topology
from server_fakes import TEMPLATE, FakeScheduler, listening, service_of
from toy_llm import toy_llm, toy_server

pytest.importorskip("llguidance")
TURNS = """{% for m in messages %}{{ m.role }}{{ '(' + m.name + ')' if m.name }}: {{ m.content }}
{%- for c in m.tool_calls or [] %}<tool_call>
{{ c.function | tojson }}
</tool_call>{% endfor %};
{% endfor %}assistant: """
OFFER = "{% if tools %}tools: {{ tools | tojson }}\n{% endif %}"
HERMES = OFFER + "{# <tool_call> with name and arguments #}" + TURNS
LLAMA = OFFER + "{# <|start_header_id|> ipython, parameters #}" + TURNS
MISTRAL = OFFER + "{# [TOOL_CALLS] #}" + TURNS
WITH_ID = OFFER + "{# [TOOL_CALLS] [CALL_ID] [ARGS] #}" + TURNS
CODER = (
    OFFER
    + """{% for m in messages %}{{ m.role }}: {{ m.content }}
{%- for c in m.tool_calls or [] %}{{- '\n<tool_call>\n<function=' + c.function.name + '>\n' }}
{%- for name, value in c.function.arguments|items %}{{- '<parameter=' + name + '>\n' }}
{{- value if value is string else value | tojson }}{{- '\n</parameter>\n' }}{% endfor %}
{{- '</function>\n</tool_call>' }}{% endfor %};
{% endfor %}assistant: """
)
GLM = OFFER + "{# <tool_call> <arg_key> <arg_value> #}" + TURNS
QUESTION = [{"role": "user", "content": "Is it warm?"}]
CITY = {"type": "object", "properties": {"city": {"enum": ["Rome", "Oslo"]}, "days": {"type": "integer", "minimum": 1,
        "maximum": 9, "default": None}}, "required": ["city", "days"]}  # fmt: skip


def tool(name: str, parameters: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    given = {"parameters": parameters} if parameters else {}
    return {"type": "function", "function": {"name": name, **more, **given}}


TOOLS = [tool("weather", CITY, description="of the next days"), tool("time")]
LOOK = '{"name": "weather", "arguments": {"city": "Rome", "days": 3}}'
CALL = f"<tool_call>\n{LOOK}\n</tool_call>"
NOW = '<tool_call>\n{"name": "time", "arguments": {}}\n</tool_call>'


class Tokenizer(MarkedTokenizer):
    names: dict[str, str] = {}

    def __init__(self, template: str) -> None:
        self.chat_template = self.tool_template = template


def saying(text: str, template: str = HERMES, prompt: int = 0) -> Engine:
    """prompt: its length in tokens, which the script counts along."""
    tokens: list[int] = []
    for part in Tokenizer.control.split(text):
        is_text = part == CONTROL_MARK and template not in (MISTRAL, WITH_ID)
        tokens += b"[TOOL_CALLS]" if is_text else [part] if isinstance(part, int) else part.encode()
    script = Script((*[0] * prompt, *tokens, *[EOS] * 50), Tokenizer.vocab_size)
    plan = make_plan(SkilledDrafter(script, probability=0.7, seed=1), StaticPolicy(Topology.dense([2, 2])), 7)
    return Engine(ScriptedRuntime(script, max_rows=64), Tokenizer(template), FixedController(plan))


def random_engine(template: str = HERMES, seed: int = 1) -> Engine:
    runtime = random_reference(seed, Tokenizer.vocab_size, context_length=1024, max_rows=16)
    return Engine(runtime, Tokenizer(template), PlainController())


@contextmanager
def serving(engine: Engine, **options: Any) -> Iterator[tuple[openai.OpenAI, FakeScheduler]]:
    service, scheduler = service_of(engine, Options(**options), forms=True)
    with listening(service) as url, openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client:
        yield client, scheduler
    scheduler.close()


@contextmanager
def said(text: str, template: str = HERMES, **request: Any) -> Iterator[tuple[openai.OpenAI, dict[str, Any]]]:
    """A client of a model that says `text` to this request, and the request."""
    request = {"messages": QUESTION, "tools": TOOLS, "max_tokens": 400} | request
    shown = None if request.get("tool_choice") == "none" else TOOLS
    prompt = len(chat_ids(Tokenizer(template), request["messages"], tools=shown))
    with serving(saying(text, template, prompt)) as (client, _):
        yield client, {"model": "toy", **request}


def calls_of(message: Any) -> list[tuple[str, str]]:
    return [(call.function.name, call.function.arguments) for call in message.tool_calls or ()]


def streamed(client: openai.OpenAI, request: dict[str, Any]) -> tuple[str, list[tuple[str, str]], str | None]:
    """(content, calls, reason), put together as applications do."""
    content, calls, reason = "", [], None
    with client.chat.completions.create(**request, stream=True) as stream:
        for chunk in stream:
            (choice,) = chunk.choices
            assert reason is None, "nothing comes after the reason"
            content += choice.delta.content or ""
            for call in choice.delta.tool_calls or ():
                if call.id:
                    assert (call.index, call.type, call.function.arguments) == (len(calls), "function", "")
                    calls.append((call.function.name, ""))
                else:
                    name, arguments = calls[call.index]
                    calls[call.index] = (name, arguments + call.function.arguments)
            reason = choice.finish_reason
    return content, calls, reason


@pytest.mark.parametrize(
    ("text", "content", "calls", "reason"),
    [
        ("It is <tool> warm.\n", "It is <tool> warm.\n", [], "stop"),
        ("", "", [], "stop"),
        (CALL, None, [("weather", '{"city": "Rome", "days": 3}')], "tool_calls"),
        ("Let me look.\n\n" + CALL, "Let me look.", [("weather", '{"city": "Rome", "days": 3}')], "tool_calls"),
        (f"{NOW}\n{CALL}", None, [("time", "{}"), ("weather", '{"city": "Rome", "days": 3}')], "tool_calls"),
    ],
)
def test_the_model_decides(text: str, content: str | None, calls: list[tuple[str, str]], reason: str) -> None:
    with said(text) as (client, request):
        (choice,) = client.chat.completions.create(**request).choices
        assert (choice.message.content, calls_of(choice.message), choice.finish_reason) == (content, calls, reason)
        assert streamed(client, request) == (content or "", calls, reason)
        for call in choice.message.tool_calls or ():
            assert call.type == "function"
            assert re.fullmatch(r"call_[0-9a-f]{24}", call.id)


def test_frames_of_a_call() -> None:
    with said("Well. " + NOW) as (client, request):
        body = {**request, "stream": True, "medusa": {"off": True}}
        response = httpx.post(f"{client.base_url}chat/completions", json=body, timeout=120)
    lines = [line.removeprefix("data: ") for line in response.text.split("\n\n") if line]
    frames = [json.loads(line) for line in lines[:-1]]
    deltas = [frame["choices"][0]["delta"] for frame in frames]
    assert deltas[0] == {"role": "assistant", "content": None}
    said_texts = [delta["content"] for delta in deltas[1:] if "content" in delta]
    assert "".join(said_texts) == "Well."
    first, *rest = (delta["tool_calls"][0] for delta in deltas if "tool_calls" in delta)
    assert first.pop("id")
    assert first == {"index": 0, "type": "function", "function": {"name": "time", "arguments": ""}}
    assert rest == [{"index": 0, "function": {"arguments": one}} for one in "{}"]
    assert (deltas[-1], frames[-1]["choices"][0]["finish_reason"]) == ({}, "tool_calls")
    assert "tool_call>" not in response.text


@pytest.mark.parametrize(
    "template",
    [HERMES, LLAMA, MISTRAL, WITH_ID, CODER, GLM],
    ids=["hermes", "llama3", "mistral", "mistral-id", "coder", "glm"],
)
@pytest.mark.parametrize("seed", range(3))
def test_a_call_can_be_required_of_any_model(template: str, seed: int) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    request = {"model": "toy", "messages": QUESTION, "tools": TOOLS, "tool_choice": "required", "max_tokens": 300,
               "temperature": 1.0, "seed": seed, "parallel_tool_calls": False}  # fmt: skip
    with serving(random_engine(template, seed)) as (client, _):
        (choice,) = client.chat.completions.create(**request).choices
        again = streamed(client, request)
    ((name, arguments),) = calls_of(choice.message)
    assert (choice.finish_reason, choice.message.content) == ("tool_calls", None)
    assert again == ("", [(name, arguments)], "tool_calls")
    jsonschema.validate(json.loads(arguments), CITY if name == "weather" else {"maxProperties": 0})
    assert len(choice.message.tool_calls[0].id) == (9 if template in (MISTRAL, WITH_ID) else 29)


def test_ids_are_those_that_the_model_writes() -> None:
    first, again = (f"[TOOL_CALLS]time[CALL_ID]{id}[ARGS]{{}}" for id in ("Ab3456789", "Ab3456789"))
    with said(first + again, WITH_ID) as (client, request):
        (choice,) = client.chat.completions.create(**request).choices
        with client.chat.completions.create(**request, stream=True) as stream:
            calls = [call for chunk in stream for call in chunk.choices[0].delta.tool_calls or () if call.id]
    assert calls_of(choice.message) == [("time", "{}")] * 2
    for made in (choice.message.tool_calls, calls):
        assert made[0].id == "Ab3456789"
        assert re.fullmatch("[a-zA-Z0-9]{9}", made[1].id) and made[1].id != made[0].id


def test_values_between_tags() -> None:
    note = {"text": {"type": "string"}, "days": {"type": "integer"}, "tags": {"type": "array"}}
    tools = [tool("note", {"type": "object", "properties": note, "required": ["text"]}), *TOOLS]
    call = (
        "\n<tool_call>\n<function=note>\n<parameter=text>\nIt's \"<b>\n</parameter>\n"
        '<parameter=tags>\n["</parameter>"]\n</parameter>\n</function>\n</tool_call>'
        "\n<tool_call>\n<function=time>\n</function>\n</tool_call>"
    )
    told = [("note", '{"text": "It\'s \\"<b>", "tags": ["</parameter>"]}'), ("time", "{}")]
    ids = chat_ids(Tokenizer(CODER), QUESTION, tools=tools)
    with serving(saying("Well." + call, CODER, len(ids))) as (client, scheduler):
        request = {"model": "toy", "messages": QUESTION, "tools": tools, "max_tokens": 400}
        (choice,) = client.chat.completions.create(**request).choices
        assert (choice.message.content, calls_of(choice.message)) == ("Well.", told)
        assert streamed(client, request) == ("Well.", told, "tool_calls")
        results = [{"role": "tool", "tool_call_id": one.id, "content": "done"} for one in choice.message.tool_calls]
        messages = [*QUESTION, choice.message.model_dump(exclude_none=True), *results]
        client.chat.completions.create(**request | {"messages": messages, "max_tokens": 1})
        assert f"assistant: Well.{call};\n" in Tokenizer(CODER).decode(scheduler.jobs[-1].ids)


def allowed(mode: str, *names: str) -> dict[str, Any]:
    tools = [{"type": "function", "function": {"name": name}} for name in names]
    return {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": tools}}


def test_some_functions_may_be_called_and_all_are_shown() -> None:
    request = {"model": "toy", "messages": QUESTION, "tools": TOOLS, "max_tokens": 300, "temperature": 1.0}
    with serving(random_engine()) as (client, scheduler):
        for seed in range(4):
            choice = allowed("required", "time")
            (answer,) = client.chat.completions.create(**request, tool_choice=choice, seed=seed).choices
            assert {name for name, _ in calls_of(answer.message)} == {"time"}
        assert "weather" in Tokenizer(HERMES).decode(scheduler.jobs[-1].ids)
    with said(f"{NOW}\n{NOW}", tool_choice=allowed("required", "weather", "time")) as (client, request):
        (choice,) = client.chat.completions.create(**request).choices
        assert calls_of(choice.message) == [("time", "{}")] * 2
    with said("Warm.", tool_choice=allowed("auto", "time")) as (client, request):
        assert client.chat.completions.create(**request).choices[0].message.content == "Warm."
    with said(CALL, tool_choice=allowed("auto", "time"), max_tokens=60) as (client, request):
        made = client.chat.completions.create(**request).choices[0].message
        assert "weather" not in [name for name, _ in calls_of(made)]


@pytest.mark.parametrize(
    ("opened", "text", "content"),
    [
        (
            "",
            "<think>\nTime?\n</think>\n\n" + NOW,
            "\nTime?\n</think>",
        ),  # one mark is a control token here, one is text
        ("<think>\n", "Time?\n</think>\n\n" + NOW, "Time?\n</think>"),
        ("<think>\n\n</think>\n\n", NOW, None),
        ("", NOW, None),
    ],
)
def test_a_call_that_is_required_may_be_thought_of(opened: str, text: str, content: str | None) -> None:
    template = HERMES + "{# <think></think> #}" + opened
    with said(text, template, tool_choice="required") as (client, request):
        (choice,) = client.chat.completions.create(**request).choices
        assert (choice.message.content, calls_of(choice.message)) == (content, [("time", "{}")])
        assert streamed(client, request) == (content or "", [("time", "{}")], "tool_calls")


def test_nothing_is_thought_where_the_template_knows_no_thoughts() -> None:
    request = {"model": "toy", "messages": QUESTION, "tools": TOOLS, "tool_choice": "required", "max_tokens": 1}
    for template, begins in ((HERMES, False), (HERMES + "{# <think></think> #}", True)):
        with serving(random_engine(template)) as (client, scheduler):
            client.chat.completions.create(**request)
            matcher = scheduler.jobs[0].params.grammar.matcher()
            assert bool(matcher.try_consume_tokens([THINK])) == begins


@pytest.mark.parametrize("name", ["weather", "time"])
def test_one_function_can_be_required(name: str) -> None:
    request = {"model": "toy", "messages": QUESTION, "tools": TOOLS, "max_tokens": 300, "temperature": 1.0, "seed": 4}
    with serving(random_engine()) as (client, _):
        choice = {"type": "function", "function": {"name": name}}
        answer = client.chat.completions.create(**request, tool_choice=choice).choices[0]
    assert [called for called, _ in calls_of(answer.message)] == [name]
    assert answer.finish_reason == "tool_calls"


def test_no_call_when_none_is_wanted() -> None:
    with serving(saying("x")) as (client, scheduler):
        request = {"model": "toy", "messages": QUESTION, "tools": TOOLS, "max_tokens": 5}
        for choice in ("none", "auto"):
            client.chat.completions.create(**request, tool_choice=choice)
        without, offered = (Tokenizer(HERMES).decode(job.ids) for job in scheduler.jobs)
        assert "weather" not in without
        assert "weather" in offered
        assert scheduler.jobs[0].params.grammar is None
    with said(CALL, tool_choice="none") as (client, request):
        assert client.chat.completions.create(**request).choices[0].message.content == CALL


def test_only_one_call_where_more_are_not_wanted() -> None:
    with said(f"{NOW}\n{NOW}", parallel_tool_calls=False) as (client, request):
        (choice,) = client.chat.completions.create(**request).choices
    assert (calls_of(choice.message), choice.finish_reason) == ([("time", "{}")], "tool_calls")


@pytest.mark.parametrize(
    ("tokens", "content", "calls"),
    [
        (8, "Wait, <t", []),
        (len("Wait, <tool_call>\n{"), "Wait, <tool_call>\n{", []),
        (len('Wait, <tool_call>\n{"name": "weather", "arguments": {"city"'), "Wait,", [("weather", '{"city"')]),
        (len("Wait, " + CALL) - 3, "Wait,", [("weather", '{"city": "Rome", "days": 3}')]),
    ],
)
def test_a_cut_answer_loses_nothing(tokens: int, content: str, calls: list[tuple[str, str]]) -> None:
    with said("Wait, " + CALL, max_tokens=tokens) as (client, request):
        (choice,) = client.chat.completions.create(**request).choices
        assert (choice.message.content, calls_of(choice.message), choice.finish_reason) == (content, calls, "length")
        assert streamed(client, request) == (content, calls, "length")


@pytest.mark.parametrize("tokens", [len(NOW) + 1, len(f"{NOW}\n<tool_call>\n"), len(f"{NOW}\n{CALL}") - len(LOOK)])
def test_what_began_a_further_call_is_no_text(tokens: int) -> None:
    with said(f"{NOW}\n{CALL}", max_tokens=tokens) as (client, request):
        (choice,) = client.chat.completions.create(**request).choices
        found = choice.message.content, calls_of(choice.message), choice.finish_reason
        assert found == (None, [("time", "{}")], "length")
        assert streamed(client, request) == ("", [("time", "{}")], "length")


def test_totals_and_logs_say_tool_calls(caplog: pytest.LogCaptureFixture) -> None:
    llm = toy_llm()
    llm.tokenizer.tool_template = "{{ tools | length if tools }}{# <tool_call> with name and arguments #}" + TURNS  # type: ignore[misc]
    request = {"model": "toy", "messages": QUESTION, "tools": TOOLS[1:], "temperature": 1.0, "seed": 1}
    caplog.set_level("INFO", LOGGER.name)
    with toy_server(llm) as service, listening(service) as url:
        client = openai.OpenAI(base_url=f"{url}/v1", api_key="none")
        for more in ({"stream": True, "max_tokens": 150}, {"max_tokens": 150, "stop": "</tool"}, {"max_tokens": 2}):
            list(client.chat.completions.create(**request, tool_choice="required", **more))
        client.close()
        metrics = service.metrics.text().decode()
    logged = [record.fields for record in caplog.records if record.getMessage() == "request"]
    assert [line["finish_reasons"] for line in logged] == [["tool_calls"], ["tool_calls"], ["length"]]
    assert 'request_success_total{finished_reason="tool_calls"} 2.0' in metrics
    assert 'finished_reason="stop"' not in metrics


def test_calls_from_before_are_shown_by_the_template_that_knows_them() -> None:
    engine = random_engine()
    engine.tokenizer.chat_template = TEMPLATE  # type: ignore[misc]
    with serving(engine) as (client, scheduler):
        result = {"role": "tool", "tool_call_id": "a", "content": "noon"}
        for choice in ({"tool_choice": "none", "tools": TOOLS}, {}):
            request = {"model": "toy", "messages": [*QUESTION, call(), result], "max_tokens": 1, **choice}
            client.chat.completions.create(**request)
            prompt = Tokenizer(HERMES).decode(scheduler.jobs[-1].ids)
            assert "<tool_call>" in prompt and "tool(time): noon" in prompt and "tools:" not in prompt


def test_a_body_nested_deeper_than_the_stack(client: openai.OpenAI) -> None:
    schema = '{"a":' * 700 + "1" + "}" * 700
    body = json.dumps({"model": "toy", "messages": QUESTION, "tools": [tool("f", {"deep": "DEEP"})]})
    response = httpx.post(f"{client.base_url}chat/completions", content=body.replace('"DEEP"', schema), timeout=120)
    assert (response.status_code, response.json()["error"]["type"]) == (400, "invalid_request_error")


def test_a_conversation_goes_on_with_results() -> None:
    call = {
        "id": "call_1",
        "type": "function",
        "function": {"name": "weather", "arguments": '{"city":"Rome","days":3}'},
    }
    with serving(saying("x")) as (client, scheduler):
        assistant = client.chat.completions.create(model="toy", messages=QUESTION, max_tokens=1).choices[0].message
        dumped = assistant.model_dump() | {"content": None, "tool_calls": [call]}
        result = {"role": "tool", "tool_call_id": "call_1", "content": [{"type": "text", "text": "21 degrees"}]}
        request = {"model": "toy", "messages": [*QUESTION, dumped, result], "max_tokens": 1}
        client.chat.completions.create(**request, tools=TOOLS)
        prompt = Tokenizer(HERMES).decode(scheduler.jobs[-1].ids)
    assert prompt.startswith("tools: " + json.dumps(TOOLS))  # a null in a schema included
    assert f"assistant: <tool_call>\n{LOOK}\n</tool_call>;\n" in prompt
    assert "tool(weather): 21 degrees;\n" in prompt


def test_several_answers_have_calls_of_their_own() -> None:
    request = {"model": "toy", "messages": QUESTION, "tools": TOOLS, "tool_choice": "required", "max_tokens": 300,
               "temperature": 1.0, "seed": 5, "n": 3, "parallel_tool_calls": False}  # fmt: skip
    with serving(random_engine()) as (client, _):
        choices = client.chat.completions.create(**request).choices
        collected: dict[int, str] = {}
        with client.chat.completions.create(**request, stream=True) as stream:
            for chunk in stream:
                for call in chunk.choices[0].delta.tool_calls or ():
                    told = (call.function.name or "") + call.function.arguments
                    collected[chunk.choices[0].index] = collected.get(chunk.choices[0].index, "") + told
    assert ["".join(calls_of(choice.message)[0]) for choice in choices] == [collected[index] for index in range(3)]
    assert len({choice.message.tool_calls[0].id for choice in choices}) == 3


def test_an_answer_without_a_call_may_have_a_form() -> None:
    form = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"const": {"warm": True}}}}
    with said('{"warm": true}', response_format=form) as (client, request):
        (choice,) = client.chat.completions.create(**request).choices
    assert (choice.message.content, choice.finish_reason) == ('{"warm": true}', "stop")


def test_logprobs_are_of_every_token() -> None:
    with said("Hm " + NOW, logprobs=True) as (client, request):
        whole = client.chat.completions.create(**request).choices[0].logprobs.content
        with client.chat.completions.create(**request, stream=True) as stream:
            parts = [
                entry for chunk in stream if chunk.choices[0].logprobs for entry in chunk.choices[0].logprobs.content
            ]
    assert "".join(entry.token for entry in whole) == "Hm " + NOW
    assert [entry.token for entry in parts] == [entry.token for entry in whole]


def asked(client: openai.OpenAI, changes: dict[str, Any]) -> dict[str, Any]:
    body = {"model": "toy", "messages": QUESTION, "tools": TOOLS, "max_tokens": 3} | changes
    response = httpx.post(f"{client.base_url}chat/completions", json=body, timeout=120)
    assert response.status_code == 400, response.text
    error = response.json()["error"]
    assert (error["type"], set(error)) == ("invalid_request_error", {"message", "type", "param", "code"})
    return error


def call(arguments: Any = "{}", **more: Any) -> dict[str, Any]:
    function = {"name": "time", "arguments": arguments}
    return {"role": "assistant", "tool_calls": [{"id": "a", "type": "function", "function": function}], **more}


DEEP = {"type": "array"}
for _ in range(150):
    DEEP = {"type": "array", "items": DEEP}
REFUSED = [
    ({"tools": [{"type": "function"}]}, "missing_parameter", "tools.0.function"),
    ({"tools": [{"type": "function", "function": {}}]}, "missing_parameter", "tools.0.function.name"),
    ({"tools": [{"type": "retrieval"}]}, "invalid_value", "tools.0.type"),
    ({"tools": [tool("a b")]}, "invalid_value", "tools.0.function.name"),
    ({"tools": [tool("f", speed=3)]}, "unsupported_parameter", "tools.0.function.speed"),
    ({"tools": [tool("f"), tool("g"), tool("f")]}, "invalid_value", "tools.2.function.name"),
    ({"tools": [tool("f"), tool("f")], "tool_choice": "none"}, "invalid_value", "tools.1.function.name"),
    ({"tools": [tool(f"f{place}") for place in range(129)]}, "invalid_value", "tools"),
    ({"tools": [tool("f"), tool("g", {"type": "array"})]}, "invalid_schema", "tools.1.function.parameters"),
    ({"tools": [tool("g", {"properties": {"x": {"type": "no"}}})]}, "invalid_schema", "tools.0.function.parameters"),
    ({"tools": [tool("g", {"properties": {"x": DEEP}})]}, "invalid_schema", "tools.0.function.parameters"),
    (
        {"tools": [tool("g", {"properties": {"x": {"if": {}}}}, strict=True)]},
        "invalid_schema",
        "tools.0.function.parameters",
    ),
    ({"tool_choice": "sometimes"}, "invalid_value", "tool_choice"),
    ({"tool_choice": 5}, "invalid_value", "tool_choice"),
    ({"tool_choice": {"type": "function"}}, "missing_parameter", "tool_choice.function"),
    ({"tool_choice": {"type": "function", "function": {"name": "other"}}}, "invalid_value", "tool_choice"),
    ({"tool_choice": "required", "tools": None}, "invalid_value", "tool_choice"),
    ({"tool_choice": {"type": "function", "function": {"name": "time"}}, "tools": []}, "invalid_value", "tool_choice"),
    ({"tool_choice": allowed("auto", "time"), "tools": []}, "invalid_value", "tool_choice"),
    ({"tool_choice": allowed("auto", "other")}, "invalid_value", "tool_choice"),
    ({"tool_choice": allowed("auto")}, "invalid_value", "tool_choice.allowed_tools.tools"),
    ({"tool_choice": allowed("none", "time")}, "invalid_value", "tool_choice.allowed_tools.mode"),
    ({"tool_choice": {"type": "allowed_tools"}}, "missing_parameter", "tool_choice.allowed_tools"),
    ({"parallel_tool_calls": "yes"}, "invalid_value", "parallel_tool_calls"),
    ({"medusa": {"acceptance": "typical"}}, "invalid_value", "tools"),
    ({"messages": [*QUESTION, {"role": "tool", "content": "x"}]}, "missing_parameter", "messages.1.tool_call_id"),
    (
        {"messages": [*QUESTION, call(), {"role": "tool", "content": "x", "tool_call_id": "b"}]},
        "invalid_value",
        "messages.2.tool_call_id",
    ),
    ({"messages": [QUESTION[0] | {"tool_call_id": "a"}]}, "invalid_value", "messages.0.tool_call_id"),
    ({"messages": [QUESTION[0] | {"tool_calls": call()["tool_calls"]}]}, "invalid_value", "messages.0.tool_calls"),
    ({"messages": [{"role": "user", "content": None}]}, "missing_parameter", "messages.0.content"),
    ({"messages": [{"role": "assistant", "tool_calls": []}]}, "missing_parameter", "messages.0.content"),
    *(
        ({"messages": [*QUESTION, call(wrong)]}, "invalid_value", "messages.1.tool_calls.0.function.arguments")
        for wrong in ("[]", '{"a": "\\ud800"}', "{", '"x"', {"a": 1}, "[" * 5000, '{"a":' * 500 + "1" + "}" * 500)
    ),
]  # fmt: skip


@pytest.fixture(scope="module")
def client() -> Iterator[openai.OpenAI]:
    with serving(random_engine()) as (client, _):
        yield client


@pytest.mark.parametrize(("changes", "code", "param"), REFUSED, ids=lambda value: str(value)[:60])
def test_refusals(client: openai.OpenAI, changes: dict[str, Any], code: str, param: str) -> None:
    error = asked(client, changes)
    assert (error["code"], error["param"]) == (code, param)
    assert param.rpartition(".")[2] in error["message"] or param == "tools"


def test_a_model_that_knows_no_tools() -> None:
    with serving(random_engine(TEMPLATE)) as (client, _):
        error = asked(client, {})
        assert (error["code"], error["param"]) == ("unsupported_parameter", "tools")
        assert "the chat template of toy knows no tools" in error["message"] and "--chat-template" in error["message"]
        error = asked(client, {"tools": None, "messages": [*QUESTION, call()]})
        assert (error["code"], error["param"]) == ("unsupported_parameter", "messages.1.tool_calls")


def test_a_format_that_is_not_known_can_be_named() -> None:
    unknown = OFFER + TURNS.replace("<tool_call>", "<call>").replace("</tool_call>", "</call>")
    with serving(random_engine(unknown)) as (client, _):
        error = asked(client, {})
        assert (error["code"], error["param"]) == ("unsupported_parameter", "tools")
        assert "--tool-format" in error["message"] and "hermes" in error["message"]
    with serving(random_engine(unknown), tool_format="llama3") as (client, _):
        request = {"model": "toy", "messages": QUESTION, "tools": TOOLS, "tool_choice": "required", "max_tokens": 200}
        assert calls_of(client.chat.completions.create(**request, temperature=1.0, seed=1).choices[0].message)


def test_without_a_grammar_there_are_no_tools() -> None:
    service, scheduler = service_of(random_engine())
    with listening(service) as url, openai.OpenAI(base_url=f"{url}/v1", api_key="none") as client:
        error = asked(client, {})
    scheduler.close()
    assert (error["code"], error["param"]) == ("unsupported_parameter", "tools")


def test_a_schema_that_becomes_too_much_in_the_answer_names_the_tools() -> None:
    wide = {"type": "object", "properties": {f"k{i}": {"type": "null"} for i in range(1000)}}
    late = {"type": "object", "properties": {"b": {"type": "boolean"}, "w": wide | {"additionalProperties": False}},
            "required": ["b", "w"]}  # fmt: skip
    short = "{{ tools | length if tools }}{# <tool_call> with name and arguments #}" + TURNS
    llm = toy_llm()
    llm.tokenizer.tool_template = short  # type: ignore[misc]
    with toy_server(llm) as service, listening(service) as url:
        client = openai.OpenAI(base_url=f"{url}/v1", api_key="none")
        error = asked(client, {"tools": [tool("f", late)], "tool_choice": "required", "max_tokens": 200})
        client.close()
    assert (error["code"], error["param"]) == ("invalid_schema", "tools")


def test_defaults_of_the_server_hold() -> None:
    with serving(random_engine(), defaults=SamplingParams(max_tokens=7)) as (client, _):
        answer = client.chat.completions.create(model="toy", messages=QUESTION, tools=TOOLS)
    assert answer.usage.completion_tokens <= 7
