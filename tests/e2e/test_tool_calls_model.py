"""Functions called by the real model, which knows none: with a template of the examples and a grammar to hold it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jsonschema
import openai
import pytest

pytestmark = [pytest.mark.model, pytest.mark.timeout(900)]
TEMPLATE = Path(__file__).parents[2] / "examples" / "tools.jinja"
SCHEMAS: dict[str, dict[str, Any]] = {
    "weather": {
        "type": "object",
        "properties": {"city": {"type": "string", "maxLength": 20}, "unit": {"enum": ["celsius", "fahrenheit"]}},
        "required": ["city", "unit"],
    },
    "add_event": {
        "type": "object",
        "properties": {
            "title": {"type": "string", "maxLength": 30},
            "day": {"enum": ["monday", "tuesday", "wednesday", "thursday", "friday"]},
            "hours": {"type": "array", "items": {"type": "integer", "minimum": 0, "maximum": 23}, "maxItems": 3},
        },
        "required": ["title", "day", "hours"],
    },
    "clock": {"type": "object", "properties": {}},
}
TOOLS: list[Any] = [
    {"type": "function", "function": {"name": name, "description": f"{name} of today", "parameters": schema}}
    for name, schema in SCHEMAS.items()
]
PROMPTS = (
    "What is the weather in Paris?",
    "Is it warm in Oslo today, in fahrenheit?",
    "Put the dentist on Tuesday at ten.",
    "Add a meeting with Anna on Friday.",
    "What time is it?",
    "Tell me the weather in São Paulo.",
    "Remind me on Monday to call my mother.",
    "How cold is it in Nuuk?",
    "Explain a B-tree in two sentences.",
    "Write a poem about the sea.",
)


@pytest.fixture(scope="module")
def client() -> Iterator[openai.OpenAI]:
    with served() as client:
        yield client


@contextmanager
def served(*options: str) -> Iterator[openai.OpenAI]:
    given = ("--port", "0", "--chat-template", str(TEMPLATE), "--weights", "f32", "--budget", "8", *options)
    command = [sys.executable, "-m", "medusakit", "serve", "-m", "smollm2", *given]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        url, seen = "", []
        for line in process.stderr:
            seen.append(line)
            found = re.search(r"api +(\S+/v1)", line)
            url = found[1] if found else url
            if "ready" in line:
                break
        assert url, "".join(seen)
        with openai.OpenAI(base_url=url, api_key="none", max_retries=0, timeout=600) as client:
            yield client
        process.terminate()


def called(client: openai.OpenAI, prompt: str, *, off: bool, stream: bool, **changes: Any) -> list[tuple[str, str]]:
    messages: list[Any] = [{"role": "user", "content": prompt}]
    asked: dict[str, Any] = {"model": "smollm2", "messages": messages, "tools": TOOLS, "max_tokens": 120}
    asked |= {"tool_choice": "required", "parallel_tool_calls": False, "extra_body": {"medusa": {"off": off}}} | changes
    if not stream:
        choice = client.chat.completions.create(**asked).choices[0]
        assert (choice.finish_reason, choice.message.content) == ("tool_calls", None)
        return [(call.function.name, call.function.arguments) for call in choice.message.tool_calls]
    with client.chat.completions.stream(**asked) as events:
        choice = events.get_final_completion().choices[0]
    assert choice.finish_reason == "tool_calls"
    return [(call.function.name, call.function.arguments) for call in choice.message.tool_calls or ()]


@pytest.mark.parametrize("prompt", PROMPTS)
def test_every_call_can_be_made(client: openai.OpenAI, prompt: str) -> None:
    """A stream by trees and a whole answer by plain decoding say the same."""
    ((name, arguments),) = called(client, prompt, off=False, stream=True)
    jsonschema.validate(json.loads(arguments), SCHEMAS[name])
    assert called(client, prompt, off=True, stream=False) == [(name, arguments)]


def test_one_function_that_was_named(client: openai.OpenAI) -> None:
    named = {"type": "function", "function": {"name": "add_event"}}
    ((name, arguments),) = called(client, PROMPTS[0], off=False, stream=False, tool_choice=named)
    assert name == "add_event"
    jsonschema.validate(json.loads(arguments), SCHEMAS[name])


@pytest.mark.parametrize("form", ["qwen3-coder", "glm45"])
def test_parameters_between_tags(form: str) -> None:
    """The model was taught another format; the grammar holds it to this one."""
    with served("--tool-format", form) as client:
        for prompt in (PROMPTS[1], PROMPTS[6]):
            ((name, arguments),) = called(client, prompt, off=False, stream=True)
            jsonschema.validate(json.loads(arguments), SCHEMAS[name])
            assert called(client, prompt, off=True, stream=False) == [(name, arguments)]
