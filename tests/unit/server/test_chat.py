"""Chat over HTTP with OpenAI's own client, and the exact bytes of a stream."""

import json

import httpx2 as httpx
import openai
import pytest

from medusakit.settings import SamplingParams
from server_fakes import listening, random_engine, scripted, service_of

QUESTION = [{"role": "user", "content": "Explain a B-tree"}]


@pytest.fixture(scope="module")
def scripted_url():
    service, scheduler = service_of(scripted("A héap — of 木. "))
    with listening(service) as url:
        yield url
    scheduler.close()


@pytest.fixture
def client(scripted_url):
    with openai.OpenAI(base_url=f"{scripted_url}/v1", api_key="none", max_retries=0) as found:
        yield found


def events(response):
    return [line.removeprefix("data: ") for line in response.text.split("\n\n") if line]


def test_answer_is_the_models_and_says_what_it_took(client):
    answer = client.chat.completions.create(model="toy", messages=QUESTION, max_tokens=30)
    assert answer.object == "chat.completion"
    assert answer.id.startswith("chatcmpl-")
    assert answer.choices[0].finish_reason == "length"
    assert answer.choices[0].message.content in "A héap — of 木. " * 3
    prompt = len("user: Explain a B-tree\nassistant: ")
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (prompt, 30)
    assert answer.usage.total_tokens == prompt + 30
    assert answer.usage.prompt_tokens_details.cached_tokens == 3
    assert answer.timings["predicted_n"] == 30
    assert answer.timings["draft_kind"] == "medusa"
    assert 0 < answer.timings["draft_n_accepted"] < answer.timings["draft_n"]
    assert answer.timings["draft_rounds"] < 29
    assert answer.system_fingerprint.startswith("fp_")


def test_stream_says_the_same(client):
    whole = client.chat.completions.create(model="toy", messages=QUESTION, max_tokens=30)
    with client.chat.completions.create(model="toy", messages=QUESTION, max_tokens=30, stream=True) as stream:
        chunks = list(stream)
    assert chunks[0].choices[0].delta.role == "assistant"
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == whole.choices[0].message.content
    assert [chunk.choices[0].finish_reason for chunk in chunks][-1] == "length"
    assert all(chunk.choices[0].finish_reason is None for chunk in chunks[:-1])
    assert len({chunk.id for chunk in chunks}) == 1


async def ask_asynchronously(url):
    async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none") as client:
        stream = await client.chat.completions.create(model="toy", messages=QUESTION, max_tokens=9, stream=True)
        return [chunk async for chunk in stream]


@pytest.mark.anyio
async def test_asynchronous_client(scripted_url):
    assert (await ask_asynchronously(scripted_url))[-1].choices[0].finish_reason == "length"


@pytest.fixture
def anyio_backend():
    return "asyncio"


def test_frames_to_the_letter(scripted_url):
    body = {"model": "toy", "messages": QUESTION, "max_tokens": 3, "stream": True, "medusa": {"off": True}}
    response = httpx.post(f"{scripted_url}/v1/chat/completions", json=body)
    assert response.headers["content-type"].startswith("text/event-stream")
    frames = events(response)
    assert frames[-1] == "[DONE]"
    assert response.text.endswith("data: [DONE]\n\n")
    parsed = [json.loads(frame) for frame in frames[:-1]]
    for chunk in parsed:
        assert {chunk.pop(key) is not None for key in ("id", "created", "system_fingerprint")} == {True}
        assert (chunk.pop("model"), chunk.pop("object")) == ("toy", "chat.completion.chunk")
    timings = parsed[-1].pop("timings")
    assert (timings["draft_n"], timings["predicted_n"]) == (0, 3)
    text = [chunk["choices"][0]["delta"].get("content") for chunk in parsed]
    deltas = [{"role": "assistant", "content": ""}, *({"content": one} for one in text[1:-1]), {}]
    reasons = [None] * (len(deltas) - 1) + ["length"]
    assert parsed == [
        {"choices": [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}]}
        for delta, reason in zip(deltas, reasons, strict=True)
    ]


@pytest.mark.parametrize("asked", [True, False])
def test_usage_chunk_only_when_asked(scripted_url, asked):
    body = {"model": "toy", "messages": QUESTION, "max_tokens": 4, "stream": True}
    if asked:
        body["stream_options"] = {"include_usage": True}
    frames = [json.loads(frame) for frame in events(httpx.post(f"{scripted_url}/v1/chat/completions", json=body))[:-1]]
    if asked:
        assert frames[-1]["choices"] == []
        assert frames[-1]["usage"]["completion_tokens"] == 4
        assert all(frame["usage"] is None for frame in frames[:-1])
    else:
        assert all("usage" not in frame for frame in frames)


@pytest.mark.parametrize("stop", [" of", "— o", ["木", "zzz"], "héa"])
def test_nothing_of_a_stop_or_after_it(client, stop):
    arguments = {"model": "toy", "messages": QUESTION, "max_tokens": 60, "stop": stop}
    whole = client.chat.completions.create(**arguments).choices[0]
    first = stop if isinstance(stop, str) else stop[0]
    assert whole.finish_reason == "stop"
    assert first not in whole.message.content
    with client.chat.completions.create(**arguments, stream=True) as stream:
        pieces = [chunk.choices[0].delta.content or "" for chunk in stream]
    assert "".join(pieces) == whole.message.content
    assert "\ufffd" not in "".join(pieces)


def test_logprobs_are_the_models(client):
    answer = client.chat.completions.create(model="toy", messages=QUESTION, max_tokens=5, logprobs=True, top_logprobs=3)
    entries = answer.choices[0].logprobs.content
    assert len(entries) == 5
    assert all(len(entry.top_logprobs) == 3 for entry in entries)
    assert all(entry.logprob == entry.top_logprobs[0].logprob > entry.top_logprobs[1].logprob for entry in entries)
    assert (
        bytes(byte for entry in entries for byte in entry.bytes)
        .decode("utf-8", "ignore")
        .startswith(answer.choices[0].message.content)
    )


def test_detail_header_shows_where_tokens_came_from(scripted_url):
    body = {"model": "toy", "messages": QUESTION, "max_tokens": 20, "stream": True}
    response = httpx.post(f"{scripted_url}/v1/chat/completions", json=body, headers={"x-medusa-detail": "1"})
    tokens = [token for frame in events(response)[:-1] for token in json.loads(frame).get("medusa", ())]
    assert len(tokens) == 20
    assert {token["from_draft"] for token in tokens} == {True, False}


@pytest.mark.parametrize(
    "params", [{}, {"temperature": 0.8, "seed": 5, "top_p": 0.9}, {"temperature": 1.0, "seed": 2**63}]
)
def test_equal_to_the_library(params):
    engine = random_engine(3)
    service, scheduler = service_of(engine)
    with listening(service) as url, openai.OpenAI(base_url=f"{url}/v1", api_key="none") as client:
        answer = client.completions.create(model="toy", prompt="once upon", max_tokens=20, **params)
    scheduler.close()
    twin = random_engine(3)
    session = twin.start(twin.tokenizer.encode("once upon", add_special=True), SamplingParams(max_tokens=20, **params))
    for _ in twin.run(session):
        pass
    assert answer.choices[0].text == session.result().text


def test_several_answers_differ_by_their_choice_and_not_by_chance():
    service, scheduler = service_of(random_engine(3))
    with listening(service) as url, openai.OpenAI(base_url=f"{url}/v1", api_key="none") as client:
        asked = {"model": "toy", "messages": QUESTION, "max_tokens": 12, "temperature": 1.0, "seed": 4, "n": 3}
        first, again = (client.chat.completions.create(**asked) for _ in range(2))
        with client.chat.completions.create(**asked, stream=True) as stream:
            streamed = ["", "", ""]
            for chunk in stream:
                streamed[chunk.choices[0].index] += chunk.choices[0].delta.content or ""
    scheduler.close()
    texts = [choice.message.content for choice in first.choices]
    assert [choice.index for choice in first.choices] == [0, 1, 2]
    assert len(set(texts)) == 3
    assert texts == [choice.message.content for choice in again.choices] == streamed
    assert first.usage.completion_tokens == 36
