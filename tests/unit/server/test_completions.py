"""Completions over HTTP: several prompts, token ids, echo, and what lm-eval asks for."""

import json

import httpx2 as httpx
import pytest

from medusakit.engine.jobs import SchedulerSettings
from medusakit.engine.scheduler import Scheduler
from medusakit.server.keys import Keyring
from medusakit.server.service import Options, Service, Serving
from medusakit.verify.grammar import Grammars
from server_fakes import card_of, listening, random_engine

QUESTION = [{"role": "user", "content": "?"}]


def frames_of(response):
    return [json.loads(line.removeprefix("data: ")) for line in response.text.split("\n\n") if line[:7] == "data: {"]


class HasEngine:
    def __init__(self, engine):
        self.engine = engine


@pytest.fixture(scope="module")
def client():
    """A random model behind the real scheduler."""
    engine = random_engine(2)
    service = Service(Options(), Keyring(()))
    settings = SchedulerSettings(max_rows=4, prefill_chunk=8)
    scheduler = Scheduler(HasEngine(engine), settings, on_step=service.metrics.on_step)
    scheduler.start()
    grammars = Grammars(engine.tokenizer, 258)
    service.opened(Serving(scheduler, engine.tokenizer, card_of(engine.runtime), grammars=grammars))
    with listening(service) as url, httpx.Client(base_url=url, timeout=60) as found:
        yield found
    scheduler.close()


def complete(client, **changes):
    response = client.post("/v1/completions", json={"model": "toy", "prompt": "abc", "max_tokens": 5} | changes)
    assert response.status_code == 200, response.text
    return response.json()


def test_several_prompts_have_their_answers_in_order(client):
    alone = [complete(client, prompt=prompt)["choices"][0]["text"] for prompt in ("abc", "something else")]
    both = complete(client, prompt=["abc", "something else"])
    assert [choice["text"] for choice in both["choices"]] == alone
    assert [choice["index"] for choice in both["choices"]] == [0, 1]
    assert both["usage"]["prompt_tokens"] == 4 + 15


def test_token_ids_are_a_prompt(client):
    assert complete(client, prompt=[256, 97, 98, 99])["choices"][0]["text"] == complete(client)["choices"][0]["text"]
    refused = client.post("/v1/completions", json={"model": "toy", "prompt": [9999]})
    assert refused.status_code == 400


def test_echo_gives_the_prompt_back(client):
    plain = complete(client)["choices"][0]["text"]
    assert complete(client, echo=True)["choices"][0]["text"] == "abc" + plain
    asked = {"model": "toy", "prompt": "abc", "max_tokens": 5, "echo": True, "stream": True}
    parsed = frames_of(client.post("/v1/completions", json=asked))
    assert "".join(frame["choices"][0]["text"] for frame in parsed) == "abc" + plain


def test_lm_evals_request(client):
    """`local-completions` takes token_logprobs[context:-1] as the scores of a continuation."""
    ids = [[256, 97, 98, 99, 32, 100, 101], [256, 120, 121]]
    asked = {
        "model": "toy",
        "prompt": ids,
        "max_tokens": 1,
        "logprobs": 1,
        "echo": True,
        "seed": 1234,
        "temperature": 0,
    }
    answer = client.post("/v1/completions", json=asked).json()
    for choice, prompt in zip(answer["choices"], ids, strict=True):
        found = choice["logprobs"]
        assert {len(values) for values in found.values()} == {len(prompt) + 1}
        assert found["token_logprobs"][0] is None and found["top_logprobs"][0] is None
        assert all(score < 0 for score in found["token_logprobs"][1:])
        for score, top in zip(found["token_logprobs"][1:], found["top_logprobs"][1:], strict=True):
            assert score in top.values() and max(top.values()) >= score
        assert "".join(found["tokens"][1:-1]) == bytes(prompt[1:]).decode()
        assert found["text_offset"][1:-1] == list(range(len(prompt) - 1))
    again = client.post("/v1/completions", json=asked | {"prompt": ids[0]}).json()
    assert again["choices"][0]["logprobs"] == answer["choices"][0]["logprobs"]


def test_prompt_scores_do_not_stream(client):
    asked = {"model": "toy", "prompt": "abc", "echo": True, "logprobs": 1, "stream": True}
    response = client.post("/v1/completions", json=asked)
    assert (response.status_code, response.json()["error"]["param"]) == (400, "echo")


SCHEMA = {"type": "object", "properties": {"a": {"type": "array", "items": {"type": "boolean"}, "maxItems": 2}},
          "required": ["a"], "additionalProperties": False}  # fmt: skip


@pytest.mark.parametrize("stream", [True, False])
def test_answers_follow_their_schema(client, stream):
    form = {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA, "strict": True}}
    asked = {"model": "toy", "messages": QUESTION, "max_tokens": 60, "temperature": 1.0, "seed": 3}
    response = client.post("/v1/chat/completions", json=asked | {"response_format": form, "stream": stream})
    if stream:
        choices = [frame["choices"][0] for frame in frames_of(response)]
        text, reason = "".join(one["delta"].get("content", "") for one in choices), choices[-1]["finish_reason"]
    else:
        choice = response.json()["choices"][0]
        text, reason = choice["message"]["content"], choice["finish_reason"]
    assert reason == "stop"
    assert set(json.loads(text)) == {"a"}


@pytest.mark.parametrize(
    ("form", "code"),
    [({"type": "json_schema"}, "missing_parameter"), ({"type": "yaml"}, "invalid_value"),
     ({"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "nothing"}}}, "invalid_schema")],
)  # fmt: skip
def test_schemas_that_cannot_be_followed(client, form, code):
    asked = {"model": "toy", "messages": [{"role": "user", "content": "?"}], "response_format": form}
    response = client.post("/v1/chat/completions", json=asked)
    assert (response.status_code, response.json()["error"]["code"]) == (400, code)
