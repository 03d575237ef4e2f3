"""Every refusal in OpenAI's shape, with the right status, code and parameter."""

import time

import httpx2 as httpx
import openai
import pytest

from medusakit.errors import RuntimeFailure
from medusakit.server.service import Options
from server_fakes import listening, scripted, service_of

QUESTION = [{"role": "user", "content": "Why?"}]
LONG = [{"role": "user", "content": "x" * 90}]


@pytest.fixture(scope="module")
def server():
    service, scheduler = service_of(scripted("abc ", max_context=64), Options(max_body_bytes=20_000))
    with listening(service) as url, httpx.Client(base_url=url, timeout=20) as client:
        yield client, scheduler
    scheduler.close()


def ask(client, path="/v1/chat/completions", **changes):
    body = {"model": "toy", "messages": QUESTION, "max_tokens": 4} | changes
    if path != "/v1/chat/completions":
        del body["messages"]
    return client.post(path, json={name: value for name, value in body.items() if value != "absent"})


def failure(response):
    error = response.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert isinstance(error["message"], str)
    assert isinstance(error["code"], str)
    return error


@pytest.mark.parametrize(
    ("changes", "code", "param"),
    [
        ({"model": "gpt-9"}, "model_not_found", "model"),
        ({"model": "absent"}, "missing_parameter", "model"),
        ({"messages": []}, "invalid_value", "messages"),
        ({"messages": [{"role": "user", "content": "  "}]}, "invalid_value", None),
        ({"messages": [{"role": "robot", "content": "x"}]}, "invalid_value", "messages.0.role"),
        ({"messages": [{"role": "user", "content": "x", "speed": 3}]}, "unsupported_parameter", "messages.0.speed"),
        ({"temperature": "hot"}, "invalid_value", "temperature"),
        ({"temperature": -1}, "invalid_value", "temperature"),
        ({"top_p": 2}, "invalid_value", "top_p"),
        ({"max_tokens": 0}, "invalid_value", "max_tokens"),
        ({"max_tokens": 60}, "context_length_exceeded", "max_tokens"),
        ({"max_tokens": 4, "max_completion_tokens": 5}, "invalid_value", "max_tokens"),
        (
            {"messages": [{"role": "user", "content": "x" * 90}], "max_tokens": "absent"},
            "context_length_exceeded",
            None,
        ),
        ({"seed": -1}, "invalid_value", "seed"),
        ({"logit_bias": {"x": 1}}, "invalid_value", "logit_bias"),
        ({"logit_bias": {"9": 999}}, "invalid_value", "logit_bias"),
        ({"top_logprobs": 2}, "invalid_value", "top_logprobs"),
        ({"stop": [""]}, "invalid_value", "stop"),
        ({"stop": 5}, "invalid_value", "stop"),
        ({"messages": [{"role": "user", "content": 5}]}, "invalid_value", "messages.0.content"),
        (
            {"messages": [{"role": "user", "content": [{"type": "text"}]}]},
            "missing_parameter",
            "messages.0.content.0.text",
        ),
        ({"medusa": {"tree": 5}}, "invalid_value", "medusa.tree"),
        ({"stop": ["x"] * 17}, "invalid_value", "stop"),
        ({"stop": ["a", "x" * 1001]}, "invalid_value", "stop"),
        ({"n": 0}, "invalid_value", "n"),
        ({"stream_options": {"include_usage": True}}, "invalid_value", "stream_options"),
        ({"temprature": 1}, "unsupported_parameter", "temprature"),
        ({"functions": [{"name": "f"}]}, "unsupported_parameter", "functions"),
        ({"response_format": {"type": "json_object"}}, "unsupported_parameter", "response_format"),
        ({"medusa": {"tree": "2x2"}}, "unsupported_parameter", "medusa.tree"),
        ({"medusa": {"budget": 0}}, "invalid_value", "medusa.budget"),
    ],
)
def test_refusals(server, changes, code, param):
    response = ask(server[0], **changes)
    error = failure(response)
    assert (error["code"], error["param"]) == (code, param)
    assert response.status_code == (404 if code == "model_not_found" else 400)
    assert error["type"] == ("not_found_error" if code == "model_not_found" else "invalid_request_error")


def test_the_place_of_a_field_that_is_not_known_is_told(server):
    error = failure(ask(server[0], messages=[{"role": "user", "content": "x", "speed": 3}]))
    assert error["message"].startswith("messages.0: 'speed' is not supported")


def test_the_document_tells_of_no_status_that_is_never_sent(server):
    document = server[0].get("/openapi.json").text
    assert '"422"' not in document and "ValidationError" not in document and '"400"' in document


def test_ranges_that_the_document_tells_are_those_that_are_checked(server):
    fields = server[0].get("/openapi.json").json()["components"]["schemas"]["ChatRequest"]["properties"]
    expected = {}
    for name, field in fields.items():
        number, step = (int, 1) if {"type": "integer"} in field.get("anyOf", ()) else (float, 1e-6)
        for bound, outside in (("minimum", -step), ("maximum", step), ("exclusiveMinimum", 0)):
            if bound in field:
                value = number(field[bound])
                expected |= {(name, value): 200, (name, value + outside): 400}
    told = {name for name, _ in expected}
    assert {"temperature", "top_p", "top_k", "seed", "max_completion_tokens", "repetition_penalty"} <= told
    answers = {one: ask(server[0], **{"max_tokens": "absent", one[0]: one[1]}).status_code for one in expected}
    assert answers == expected


@pytest.mark.parametrize("prompt", [["a", 1], [True], [[1, "a"]], {"a": 1}])
def test_prompts_that_are_none(server, prompt):
    error = failure(ask(server[0], "/v1/completions", prompt=prompt))
    assert error["code"] == "invalid_value" and error["param"].startswith("prompt")
    assert "[" not in error["param"] and "str" not in error["param"]


@pytest.mark.parametrize("item", ["true", "null", "[true]", "{}"])
@pytest.mark.parametrize("field", ['"prompt":[', '"prompt":"x","stop":[', '"messages":['])
def test_a_million_faults_are_told_at_once(item, field):
    """Each fault costs a record, so that a body of nothing else would hold up all streams for half a minute."""
    service, scheduler = service_of(scripted("abc "))
    path = "/v1/chat/completions" if "messages" in field else "/v1/completions"
    body = '{"model":"toy",' + field + ",".join([item] * 200_000) + "]}"
    with listening(service) as url:
        begun = time.process_time()
        response = httpx.post(url + path, content=body, headers={"content-type": "application/json"}, timeout=300)
        taken = time.process_time() - begun
    scheduler.close()
    assert response.status_code == 400 and failure(response)["param"]
    assert taken < 1.5


def test_a_name_without_end_is_not_repeated(server):
    error = failure(ask(server[0], **{"x" * 10_000: 1}))
    assert error["code"] == "unsupported_parameter" and len(error["message"]) < 200 and error["param"] == "x" * 64


def test_a_million_biases_that_are_none(server):
    bias = {str(token): "x" for token in range(1500)}
    error = failure(ask(server[0], logit_bias=bias))
    assert error["param"] == "logit_bias.0"


def test_more_answers_than_there_is_ever_room_for(server):
    response = ask(server[0], "/v1/completions", prompt=["x"] * 64, n=16)
    error = failure(response)
    assert (response.status_code, error["code"], error["param"]) == (400, "invalid_value", "n")
    assert "1024 answers" in error["message"] and "holds 64" in error["message"]


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", ""])
def test_a_body_that_is_not_called_json(server, kind):
    body = b'{"model": "toy", "prompt": "x"}'
    response = server[0].post("/v1/completions", content=body, headers={"content-type": kind})
    assert response.status_code == 400
    assert "content-type: application/json" in failure(response)["message"]


def test_a_misspelt_field_is_told_its_name(server):
    assert "did you mean 'temperature'?" in failure(ask(server[0], temprature=1))["message"]


def test_context_message_has_the_three_numbers(server):
    message = failure(ask(server[0], max_tokens=60))["message"]
    assert all(number in message for number in ("22", "60", "64")), message


@pytest.mark.parametrize(
    "changes",
    [
        {"user": "me", "metadata": {"a": "b"}, "store": True},
        {"response_format": {"type": "text"}, "tools": None, "tool_choice": "none", "modalities": ["text"]},
        {"messages": [{"role": "user", "content": [{"type": "text", "text": "Why"}, {"type": "text", "text": "?"}]}]},
        {
            "messages": [
                {"role": "developer", "content": "Short."},
                {"role": "user", "content": "?", "tool_calls": None},
            ]
        },
    ],
)
def test_what_changes_nothing_is_taken(server, changes):
    assert ask(server[0], **changes).status_code == 200


@pytest.mark.parametrize(
    "body",
    [
        b"{",
        b"",
        b"[1]",
        b'"x"',
        b'{"temperature": NaN}',
        b"\xff\xfe",
        b"[" * 9000,
        b'{"model": "toy", "messages": [{"role": "user", "content": "\\ud800"}]}',
        b'{"model": "\\ud800", "messages": [{"role": "user", "content": "x"}]}',
        b'{"\\ud800": 1, "model": "toy", "messages": [{"role": "user", "content": "x"}]}',
    ],
)
def test_bodies_that_are_no_request(server, body):
    response = server[0].post("/v1/chat/completions", content=body, headers={"content-type": "application/json"})
    assert response.status_code == 400
    failure(response)


def test_invalid_json_is_called_that(server):
    response = server[0].post("/v1/chat/completions", content=b"{", headers={"content-type": "application/json"})
    assert failure(response)["code"] == "invalid_json"


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [("GET", "/nothing", 404, "not_found"), ("GET", "/v1/completions", 405, "method_not_allowed"),
     ("GET", "/v1/models/other", 404, "model_not_found"), ("DELETE", "/v1/requests/x", 404, "request_not_found")],
)  # fmt: skip
def test_wrong_addresses(server, method, path, status, code):
    response = server[0].request(method, path)
    assert (response.status_code, failure(response)["code"]) == (status, code)


@pytest.mark.parametrize("announced", [True, False])
def test_large_bodies_are_refused(server, announced):
    data = b"x" * 30_000
    content = data if announced else iter([data[:15_000], data[15_000:]])
    response = server[0].post("/v1/completions", content=content, headers={"content-type": "application/json"})
    assert (response.status_code, failure(response)["code"]) == (413, "request_too_large")


def test_full_queue_says_when_to_come_back(server):
    client, scheduler = server
    scheduler.max_queue = 0
    try:
        response = ask(client)
    finally:
        scheduler.max_queue = 64
    assert (response.status_code, failure(response)["code"]) == (429, "queue_full")
    assert response.headers["retry-after"] == "7"


def test_an_answer_that_fails_says_only_its_id(server):
    client, scheduler = server
    scheduler.failing = RuntimeFailure("secret detail", hint="none")
    response = client.post("/v1/completions", json={"model": "toy", "prompt": "x"}, headers={"x-request-id": "my-id"})
    assert response.status_code == 500
    assert response.headers["x-request-id"] == "my-id"
    error = failure(response)
    assert error["code"] == "internal_error"
    assert "my-id" in error["message"] and "secret" not in error["message"]


def test_a_failure_after_the_first_byte_is_a_frame_that_clients_raise(server):
    client, scheduler = server
    scheduler.failing = RuntimeFailure("secret detail", hint="none")
    with openai.OpenAI(base_url=f"{client.base_url}/v1", api_key="x") as sdk:
        stream = sdk.chat.completions.create(model="toy", messages=QUESTION, max_tokens=4, stream=True)
        with pytest.raises(openai.APIError, match="internal error"):
            list(stream)


def test_clients_get_their_own_kinds_of_error(server):
    with openai.OpenAI(base_url=f"{server[0].base_url}/v1", api_key="x", max_retries=0) as sdk:
        with pytest.raises(openai.NotFoundError) as found:
            sdk.chat.completions.create(model="gpt-9", messages=QUESTION)
        assert (found.value.code, found.value.param) == ("model_not_found", "model")
        with pytest.raises(openai.BadRequestError, match="temperature"):
            sdk.chat.completions.create(model="toy", messages=QUESTION, temperature=-1)


def test_strange_request_ids_are_replaced(server):
    assert server[0].get("/health", headers={"x-request-id": "a b!"}).headers["x-request-id"].startswith("req-")
