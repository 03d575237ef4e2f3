"""Forms of answers that are too much, over HTTP: refused by name, and nobody else waits for them."""

from __future__ import annotations

import json
import string
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx2 as httpx
import pytest

from medusakit.server.openai import MAX_FORMS_WAITING
from medusakit.server.service import FORM_THREADS, Service
from server_fakes import listening
from toy_llm import toy_llm, toy_server

pytest.importorskip("llguidance")
ENDLESS = {"allOf": [{"type": "string", "pattern": f".*{letter}.*"} for letter in string.ascii_lowercase]}
WIDE = {"type": "object", "properties": {f"k{i}": {"type": "null"} for i in range(1000)}, "additionalProperties": False}
LATE = {"type": "object", "properties": {"b": {"type": "boolean"}, "w": WIDE}, "required": ["b", "w"],
        "additionalProperties": False}  # fmt: skip


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    with toy_server(toy_llm()) as service:
        yield service


@pytest.fixture(scope="module")
def client(service: Service) -> Iterator[httpx.Client]:
    with listening(service) as url, httpx.Client(base_url=url, timeout=120) as client:
        yield client


def ask(client: httpx.Client, schema: dict[str, Any] | None, **changes: Any) -> httpx.Response:
    form = {"response_format": {"type": "json_schema", "json_schema": {"schema": schema}}} if schema else {}
    body = {"model": "toy", "messages": [{"role": "user", "content": "?"}], "max_tokens": 60}
    return client.post("/v1/chat/completions", json=body | form | changes)


def test_a_schema_without_end_is_refused_and_nobody_waits_for_it(client: httpx.Client) -> None:
    with ThreadPoolExecutor(FORM_THREADS) as pool:
        slow = [pool.submit(ask, client, ENDLESS) for _ in range(FORM_THREADS)]
        answered = 0
        while not any(one.done() for one in slow):
            assert ask(client, None).status_code == 200
            answered += 1
        refusals = [one.result() for one in slow]
    assert answered > 2
    for response in refusals:
        error = response.json()["error"]
        assert (response.status_code, error["type"], error["code"]) == (400, "invalid_request_error", "invalid_schema")
        assert error["param"] == "response_format" and "too much work" in error["message"]


@pytest.mark.parametrize("stream", [False, True])
def test_a_schema_that_becomes_too_much_in_the_answer_says_so(client: httpx.Client, stream: bool) -> None:
    response = ask(client, LATE, stream=stream)
    last = json.loads(response.text.strip().rpartition("data: ")[2])
    assert response.status_code == (200 if stream else 400)
    assert (last["error"]["code"], last["error"]["param"]) == ("invalid_schema", "response_format")
    assert "became too much work" in last["error"]["message"] and "items" in last["error"]["message"]


def test_only_so_many_wait_for_a_form(service: Service, client: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    go_on = threading.Event()

    def compile_slowly(schema: object) -> None:
        assert go_on.wait(120)

    monkeypatch.setattr(service.serving().grammars, "json_schema", compile_slowly)
    with ThreadPoolExecutor(MAX_FORMS_WAITING + FORM_THREADS) as pool:
        waiting = [pool.submit(ask, client, {"const": 1}) for _ in range(MAX_FORMS_WAITING + FORM_THREADS)]
        end = time.monotonic() + 60
        while service.forms.statistics().tasks_waiting < MAX_FORMS_WAITING:
            assert time.monotonic() < end
            time.sleep(0.01)
        refused = ask(client, {"const": 1})
        go_on.set()
        assert {one.result().status_code for one in waiting} == {200}
    assert (refused.status_code, refused.json()["error"]["code"]) == (429, "queue_full")
    assert int(refused.headers["retry-after"]) > 0
