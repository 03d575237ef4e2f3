"""A model calls a function of ours, and answers with its result.

    python examples/tools.py [URL]

URL: a server that knows tools, e.g. of `medusa serve --chat-template examples/tools.jinja`. Without one, such a server
is started with SmolLM2 for the time of this example. Needs: pip install 'medusakit[server,grammar]' openai
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from openai import OpenAI

TOOLS: list[Any] = [
    {
        "type": "function",
        "function": {
            "name": "weather",
            "description": "The weather in a city today",
            "parameters": {
                "type": "object",
                "properties": {
                    "city": {"type": "string", "maxLength": 20},
                    "unit": {"enum": ["celsius", "fahrenheit"]},
                },
                "required": ["city", "unit"],
            },
        },
    }
]


def weather(city: str, unit: str) -> str:
    return f"{city}: sunny, {21 if unit == 'celsius' else 70} degrees {unit}"


@contextmanager
def server(url: str | None) -> Iterator[str]:
    """The address of a server, which ends with the block if it was started here."""
    if url is not None:
        yield url
        return
    template = Path(__file__).with_name("tools.jinja")
    command = [sys.executable, "-m", "medusakit", "serve", "--port", "0", "--chat-template", str(template)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if found := re.search(r"api +(\S+)/v1", line):
                url = found[1]
            if "ready" in line and url:
                yield url
                break
        process.terminate()


def main(url: str | None = None) -> None:
    with server(url) as address, OpenAI(base_url=f"{address}/v1", api_key="none") as client:
        model = client.models.list().data[0].id
        messages: list[Any] = [{"role": "user", "content": "What is the weather in Lisbon today, in celsius?"}]
        asked: dict[str, Any] = {"model": model, "messages": messages, "tools": TOOLS, "max_tokens": 100}
        answer = client.chat.completions.create(**asked, tool_choice="required", parallel_tool_calls=False)
        messages.append(answer.choices[0].message)
        for call in answer.choices[0].message.tool_calls or ():
            print(f"{call.function.name}({call.function.arguments})")
            result = weather(**json.loads(call.function.arguments))
            messages.append({"role": "tool", "tool_call_id": call.id, "content": result})
        print(client.chat.completions.create(**asked, tool_choice="none").choices[0].message.content)


if __name__ == "__main__":
    main(*sys.argv[1:])
