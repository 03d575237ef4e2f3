"""Random requests, many at once: whatever is asked together (a stream or not, several answers, stop strings within
characters, penalties, forms, functions, other drafters and trees), every answer is plain decoding's of the library.

Meanwhile clients leave, heads are swapped and speculation is switched. With PYTHONPATH=tests and the arguments SEED and
ROUNDS this file goes on for longer.
"""

from __future__ import annotations

import json
import random
import sys
import threading
from collections import defaultdict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

import httpx2 as httpx
import pytest

from medusakit.engine.events import GenerationResult
from medusakit.llm import LLM
from medusakit.server.calling import calling_of, finish_reason, grammar_of, reader_of
from medusakit.server.service import Options
from medusakit.server.wire import ChatRequest
from medusakit.settings import SamplingParams
from medusakit.text.call_reader import Argued, Called, Said
from medusakit.text.chat import chat_ids
from server_fakes import TEMPLATE, listening
from toy_llm import toy_heads, toy_llm, toy_server, twin

pytest.importorskip("llguidance")
pytestmark = pytest.mark.timeout(900)  # seconds of work, but on a machine with much else to do they are minutes

Body = dict[str, Any]
PATHS = {"chat": "/v1/chat/completions", "text": "/v1/completions", "own": "/medusa/generate"}
KNOWS_TOOLS = "{# <tool_call> with arguments, tool_calls #}{% if tools %}{{ tools | length }} tools\n{% endif %}"
SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string", "pattern": "^[a-z]{1,6}$"}, "colour": {"enum": ["red", "grün"]}},
    "required": ["name", "colour"],
    "additionalProperties": False,
}
FORM = {"type": "json_schema", "json_schema": {"name": "s", "schema": SCHEMA}}


def tool(name: str, field: Body) -> Body:
    parameters = {"type": "object", "properties": {"x": field}, "required": ["x"]}
    return {"type": "function", "function": {"name": name, "parameters": parameters}}


TOOLS = [tool("pick", {"enum": ["a", "bé"]}), tool("go", {"type": "integer", "minimum": 0, "maximum": 99})]
ACCENTS = (0xC3, 0xA9, 0xE2, 0x82, 0xAC, 97, 98, 32)  # bytes of é and €, so that characters come whole and in halves
WORDS = ("Hello there, how are you? This is a beginning that many share. ", "Hello there, ", "é€ Ünï ", "x")
SAMPLING: dict[str, Sequence[Any]] = {
    "top_p": (0.5, 0.9), "top_k": (1, 3, 40), "min_p": (0.05, 0.3), "repetition_penalty": (0.8, 1.3),
    "presence_penalty": (-1.5, 2), "frequency_penalty": (-2, 0.5),
}  # fmt: skip
MEDUSA: dict[str, Sequence[Any]] = {
    "off": (True,), "budget": (1, 2, 12, 256), "drafter": ("hybrid", "medusa", "suffix", "recycling", "draft_model"),
    "tree": ("dynamic", "2x2", "3x1", [[0], [1], [0, 0], [0, 1], [0, 0, 0]]),
}  # fmt: skip


def some(rng: random.Random, of: dict[str, Sequence[Any]], share: float) -> Body:
    return {name: rng.choice(values) for name, values in of.items() if rng.random() < share}


def prompt(rng: random.Random) -> str:
    return rng.choice(WORDS) + "".join(rng.choice("abé€ z") for _ in range(rng.randint(0, 12)))


def request(rng: random.Random) -> tuple[str, Body]:
    """(kind, body), without stop strings."""
    kind = rng.choice(list(PATHS))
    body: Body = {"model": "toy", "max_tokens": rng.choice((1, 2, 3, 8, 20, 40, 80))} | some(rng, SAMPLING, 0.2)
    body |= {"stream": True} if rng.random() < 0.5 else {}
    body |= {"medusa": medusa} if (medusa := some(rng, MEDUSA, 0.35)) else {}
    body |= {"n": rng.choice((2, 3))} if kind != "own" and rng.random() < 0.3 else {}
    if rng.random() < 0.6:
        body |= {"temperature": rng.choice((0.3, 0.8, 1.7)), "seed": rng.choice((0, 5, 2**64 - 1))}
    if rng.random() < 0.5:
        body["logit_bias"] = {str(token): rng.choice((3, 6, 9)) for token in ACCENTS}
    if kind == "chat":
        body |= {"messages": [{"role": "user", "content": prompt(rng)}]} | choice_of_tools(rng)
        body |= {"logprobs": True, "top_logprobs": rng.choice((0, 5))} if rng.random() < 0.4 else {}
    else:
        several = kind == "text" and rng.random() < 0.4
        body["prompt"] = [prompt(rng), prompt(rng)] if several else prompt(rng)
        body |= {"logprobs": rng.choice((0, 3))} if rng.random() < 0.4 else {}
        body |= {"echo": True} if kind == "text" and "logprobs" not in body and rng.random() < 0.4 else {}
    if "tools" not in body and rng.random() < 0.25:
        body["response_format"] = FORM
    elif "tools" not in body and rng.random() < 0.2:
        body["ignore_eos"] = True
    return kind, body


def choice_of_tools(rng: random.Random) -> Body:
    if rng.random() < 0.6:
        return {}
    named = {"type": "function", "function": {"name": "go"}}
    chosen: Body = {"tools": TOOLS, "tool_choice": rng.choice(["auto", "required", "required", named, "none"])}
    chosen |= {"parallel_tool_calls": rng.random() < 0.5} if rng.random() < 0.4 else {}
    return chosen | ({"response_format": FORM} if rng.random() < 0.2 else {})


@dataclass(slots=True)
class Told:
    """What a client hears of one answer."""

    text: str = ""
    finish: str | None = None
    calls: list[tuple[str, str]] | None = None
    logprobs: list[float] | None = None


def plain(llm: LLM, kind: str, body: Body) -> list[tuple[GenerationResult, Told]]:
    """Every answer, decoded alone and plainly by another `LLM` of the same weights."""
    names = {"max_tokens", "temperature", "seed", "ignore_eos", *SAMPLING} & body.keys()
    params = SamplingParams(**{name: body[name] for name in names}, stop=tuple(body.get("stop", ())))
    bias = {int(token): float(value) for token, value in body.get("logit_bias", {}).items()}
    wanted = body.get("top_logprobs", 0) if body.get("logprobs") is True else body.get("logprobs")
    params, calling = replace(params, logit_bias=bias, logprobs=wanted), None
    if "response_format" in body:
        params = replace(params, grammar=llm.grammars.json_schema(SCHEMA))
    if kind == "chat":
        asked: Any = ChatRequest.model_validate(body)
        serving: Any = SimpleNamespace(tokenizer=llm.tokenizer, grammars=llm.grammars, card=SimpleNamespace(name="toy"))
        if calling := calling_of(asked, serving, Options()):
            params = replace(params, grammar=grammar_of(calling, asked, serving))
        prompts = [chat_ids(llm.tokenizer, body["messages"], tools=TOOLS if calling else None)]
    else:
        given = body["prompt"] if isinstance(body["prompt"], list) else [body["prompt"]]
        prompts = [llm.tokenizer.encode(one, add_special=True) for one in given]
    found = []
    for ids in prompts:
        for choice in range(body.get("n", 1)):
            with llm.stream_ids(ids, replace(params, choice=choice), speculation=False) as stream:
                list(stream)
                result = stream.result
            told = Told(result.text, result.finish_reason, [], [event.logprob for event in result.events])
            if calling is not None:
                read_calls(told, result, reader_of(calling))
            if body.get("echo"):
                told.text = llm.tokenizer.decode(ids) + told.text
            found.append((result, told))
    return found


def read_calls(told: Told, result: GenerationResult, reader: Any) -> None:
    parts = [*reader.feed(result.text), *reader.end()]
    told.text, told.finish = (
        "".join(part.text for part in parts if isinstance(part, Said)),
        finish_reason(result, reader),
    )
    told.calls = [(part.function, "") for part in parts if isinstance(part, Called)]
    for part in parts:
        if isinstance(part, Argued):
            name, before = told.calls[part.index]
            told.calls[part.index] = (name, before + part.text)


def heard(kind: str, response: httpx.Response, streamed: bool) -> dict[int, Told]:
    """What a client makes of an answer."""
    assert response.status_code == 200, response.text
    found: dict[int, Told] = defaultdict(lambda: Told(calls=[], logprobs=[]))
    frames = [response.text]
    if streamed:
        frames = [frame.removeprefix("data: ") for frame in response.text.split("\n\n") if frame.startswith("data")]
        assert frames.pop() == "[DONE]"
    for frame in frames:
        document = json.loads(frame)
        assert "error" not in document, document
        if kind == "own":
            hear_own(found[0], document)
        for choice in document.get("choices", ()):
            told = found[choice["index"]]
            assert told.finish is None, "something came after the end"
            said = choice.get("delta") or choice.get("message") or {"content": choice.get("text")}
            told.text, told.finish = told.text + (said.get("content") or ""), choice["finish_reason"]
            hear_calls(told, said.get("tool_calls", ()))
            scores = choice["logprobs"] or {}
            told.logprobs += scores.get("token_logprobs") or [one["logprob"] for one in scores.get("content") or ()]
    return found


def hear_own(told: Told, document: Body) -> None:
    for token in document.get("tokens", ()):
        told.text += token["text"]
        told.logprobs = [*(told.logprobs or ()), token["logprob"]]
    told.finish = document.get("result", document).get("finish_reason")


def hear_calls(told: Told, calls: Sequence[Body]) -> None:
    assert told.calls is not None
    for call in calls:
        if "id" in call:
            told.calls.append((call["function"]["name"], ""))
        name, before = told.calls[call.get("index", -1)]
        told.calls[call.get("index", -1)] = (name, before + call["function"]["arguments"])


def with_stops(rng: random.Random, body: Body, results: Sequence[GenerationResult]) -> Body:
    """The body with texts to stop at, most of which will come."""
    text, stops = rng.choice(results).text, []
    for _ in range(rng.choice((1, 2, 16))):
        at = rng.randrange(len(text) + 1)
        stops.append(text[at : at + rng.randint(1, 6)] or rng.choice(("é", "</tool_call>", '"', "\ufffd")))
    return body | {"stop": stops}


def ask(client: httpx.Client, kind: str, body: Body, expected: Sequence[tuple[GenerationResult, Told]]) -> None:
    found = heard(kind, client.post(PATHS[kind], json=body), bool(body.get("stream")))
    assert len(found) == len(expected), body
    for index, (result, told) in enumerate(expected):
        ours = found[index]
        assert (ours.text, ours.finish, ours.calls) == (told.text, told.finish, told.calls), body
        if "logprobs" in body and not (
            kind != "own" and result.finish_reason == "stop"
        ):  # an end is told by one of them
            assert ours.logprobs == pytest.approx(told.logprobs, abs=2e-4), body


def leave(client: httpx.Client, kind: str, body: Body, after: int) -> None:
    with client.stream("POST", PATHS[kind], json=body | {"stream": True}) as response:
        for number, _ in enumerate(response.iter_raw(64)):
            if number >= after:
                return


def meddle(client: httpx.Client, rng: random.Random, heads: Path, ended: threading.Event) -> None:
    while not ended.wait(rng.random() / 2):
        path, body = rng.choice(
            [("speculation", {"on": False}), ("speculation", {"on": True}), ("heads", {"path": str(heads)}),
             ("heads", {"path": "/not/there"}), ("heads/rollback", {})]
        )  # fmt: skip
        assert client.post(f"/admin/{path}", json=body).status_code in (200, 409)


def check(folder: Path, seed: int, rounds: int) -> int:
    """Answers that were compared."""
    rng, heads = random.Random(seed), toy_heads(folder, "medusa")
    llm, alone = toy_llm(heads, second=twin()), toy_llm()
    for one in (llm, alone):
        one.tokenizer.chat_template = one.tokenizer.tool_template = KNOWS_TOOLS + TEMPLATE  # type: ignore[misc]
    ended, compared = threading.Event(), 0
    with (
        toy_server(llm, max_rows=4) as service,
        listening(service) as url,
        httpx.Client(base_url=url, timeout=600) as client,
        ThreadPoolExecutor(9) as pool,
    ):
        meddling = pool.submit(meddle, client, random.Random(seed), heads, ended)
        try:
            for _ in range(rounds):
                waited = []
                for _ in range(8):
                    kind, body = request(rng)
                    expected = plain(alone, kind, body)
                    if rng.random() < 0.5:
                        body = with_stops(rng, body, [result for result, _ in expected])
                        expected = plain(alone, kind, body)
                    if rng.random() < 0.15:
                        waited.append(pool.submit(leave, client, kind, body, rng.randrange(4)))
                    else:
                        waited.append(pool.submit(ask, client, kind, body, expected))
                        compared += len(expected)
                for one in waited:
                    one.result()
        finally:
            ended.set()
        meddling.result()
        state = client.get("/v1/state").json()["scheduler"]
    assert state["broken"] == []
    return compared


def test_every_answer_is_plain_decodings(tmp_path: Path) -> None:
    assert check(tmp_path, seed=1, rounds=6) > 40


if __name__ == "__main__":
    with TemporaryDirectory() as place:
        print(check(Path(place), int(sys.argv[1]), int(sys.argv[2])), "answers compared")
