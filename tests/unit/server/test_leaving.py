"""Clients that leave, stall or are cut off: nothing keeps running for them."""

import asyncio
import json
import socket
import time

import httpx2 as httpx
import openai
import pytest

from medusakit.server.logs import LOGGER
from medusakit.server.service import Options
from medusakit.server.sse import EventStream, frame
from server_fakes import listening, scripted, service_of

QUESTION = [{"role": "user", "content": "Why?"}]


@pytest.fixture
def slow():
    """A server that makes a step every 20 ms."""
    service, scheduler = service_of(scripted("abc "), pause_s=0.02)
    with listening(service) as url:
        yield url, scheduler, service
    scheduler.close()


def eventually(condition, seconds=5.0):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.002)


@pytest.mark.parametrize("stream", [True, False])
def test_generation_stops_when_the_client_goes(slow, stream):
    url, scheduler, service = slow
    host, port = url.removeprefix("http://").split(":")
    body = b'{"model": "toy", "prompt": "x", "max_tokens": 3000, "stream": %s}' % (b"true" if stream else b"false")
    head = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
    with socket.create_connection((host, int(port))) as connection:
        connection.sendall(head % len(body) + body)
        eventually(lambda: scheduler.steps >= 3)
    left_at = scheduler.steps
    eventually(lambda: not scheduler.open)
    assert scheduler.steps - left_at <= 3
    eventually(lambda: not service.exchanges)


def test_closing_a_stream_of_the_sdk_stops_it(slow):
    url, scheduler, _ = slow
    with openai.OpenAI(base_url=f"{url}/v1", api_key="x") as sdk:
        stream = sdk.chat.completions.create(model="toy", messages=QUESTION, max_tokens=3000, stream=True)
        next(iter(stream))
        stream.close()
    eventually(lambda: not scheduler.open)


def test_requests_are_cancelled_by_their_id(slow):
    url, scheduler, _ = slow
    body = {"model": "toy", "prompt": "x", "max_tokens": 3000, "stream": True}
    with httpx.stream("POST", f"{url}/v1/completions", json=body, headers={"x-request-id": "mine"}) as response:
        lines = response.iter_lines()
        next(lines)
        state = httpx.get(f"{url}/v1/state").json()
        assert state["scheduler"]["jobs"][0]["request_id"] == "mine"
        assert httpx.delete(f"{url}/v1/requests/mine").json() == {"id": "mine", "cancelled": True}
        rest = list(lines)
    assert '"code": "cancelled"' in rest[-2]
    assert not scheduler.open


def test_requests_that_share_an_id_are_cancelled_together(slow):
    """Clients choose ids: the end of one request leaves the other's, and both end when they are asked to."""
    url, scheduler, service = slow
    long = {"model": "toy", "prompt": "x", "max_tokens": 3000, "stream": True}
    mine = {"x-request-id": "mine"}
    with (
        httpx.stream("POST", f"{url}/v1/completions", json=long, headers=mine) as first,
        httpx.stream("POST", f"{url}/v1/completions", json=long, headers=mine) as second,
    ):
        short = {"model": "toy", "prompt": "x", "max_tokens": 1}
        assert httpx.post(f"{url}/v1/completions", json=short, headers=mine).status_code == 200
        assert httpx.delete(f"{url}/v1/requests/mine").status_code == 200
        for response in (first, second):
            assert '"code": "cancelled"' in [line for line in response.iter_lines() if line][-1]
    assert not scheduler.open
    eventually(lambda: not service.exchanges)


def test_a_refused_choice_takes_the_others_with_it():
    service, scheduler = service_of(scripted("abc "), pause_s=0.02, max_queue=2)
    with listening(service) as url:
        response = httpx.post(f"{url}/v1/completions", json={"model": "toy", "prompt": "x", "n": 3})
        assert response.status_code == 429
        eventually(lambda: not scheduler.open)
    scheduler.close()


class Client:
    """The far side of an ASGI answer. takes: frames before it stalls."""

    def __init__(self, takes):
        self.sent, self._takes = [], takes

    async def send(self, message):
        if message["type"] == "http.response.body" and len(self.sent) >= self._takes:
            await asyncio.sleep(60)
        self.sent.append(message.get("body", b""))

    async def receive(self):
        await asyncio.sleep(60)


async def counting(number, pause_s=0.0):
    for place in range(number):
        await asyncio.sleep(pause_s)
        yield frame({"place": place})


def run_stream(client, frames, **limits):
    closed = []
    stream = EventStream(frames, lambda: closed.append(True), **limits)
    asyncio.run(asyncio.wait_for(stream({"type": "http"}, client.receive, client.send), 5))
    return closed


def test_a_stalled_reader_is_given_up():
    client = Client(takes=3)
    assert run_stream(client, counting(1000), stall_s=0.05) == [True]
    assert len(client.sent) == 3


def test_silence_is_filled_with_comments():
    client = Client(takes=1000)
    run_stream(client, counting(2, pause_s=0.12), ping_s=0.05)
    assert client.sent.count(b": ping\n\n") >= 2
    assert [data for data in client.sent if data.startswith(b"data")] == [frame({"place": 0}), frame({"place": 1})]


def test_draining_finishes_what_runs_and_takes_nothing_new(caplog):
    caplog.set_level("INFO", LOGGER.name)
    service, scheduler = service_of(scripted("abc "), Options(drain_s=5), pause_s=0.01)
    with listening(service) as url:
        body = {"model": "toy", "prompt": "x", "max_tokens": 40, "stream": True}
        with httpx.stream("POST", f"{url}/v1/completions", json=body) as response:
            lines = response.iter_lines()
            next(lines)
            done = asyncio.run(drain_while_asking(service, url))
            rest = [line for line in lines if line]
    assert done == (True, 503, 503, "draining")
    assert rest[-1] == "data: [DONE]"
    logged = {record.getMessage(): record.fields for record in caplog.records if record.name == LOGGER.name}
    assert logged["stopping"] == {"open_requests": 1, "drain_s": 5} and logged["stopped"] == {"all_done": True}


async def drain_while_asking(service, url):
    draining = asyncio.create_task(asyncio.to_thread(service.drain))
    async with httpx.AsyncClient(base_url=url) as client:
        while service.status != "draining":
            await asyncio.sleep(0.001)
        ready, refused = (
            await client.get("/ready"),
            await client.post("/v1/completions", json={"model": "toy", "prompt": "x"}),
        )
    return await draining, ready.status_code, refused.status_code, refused.json()["error"]["code"]


def test_draining_has_an_end(caplog):
    caplog.set_level("INFO", LOGGER.name)
    service, scheduler = service_of(scripted("abc "), Options(drain_s=0.1), pause_s=0.02)
    with listening(service) as url:
        body = {"model": "toy", "prompt": "x", "max_tokens": 3000, "stream": True}
        with httpx.stream("POST", f"{url}/v1/completions", json=body) as response:
            lines = response.iter_lines()
            next(lines)
            assert not service.drain()
            rest = [json.loads(line.removeprefix("data: ")) for line in lines if line]
    assert rest[-1]["error"]["code"] == "cancelled"
    assert not scheduler.open
    (logged,) = (record.fields for record in caplog.records if record.getMessage() == "request")
    assert logged["outcome"] == "cancelled" and logged["tokens"] > len(rest) - 1 > 0  # a chunk holds one or more


GARBAGE = {
    "no HTTP": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
    "less body than announced": b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 999\r\n\r\n{",
    "half a header": b"POST /v1/compl",
    "a body that is not JSON": b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\n\xff\x00{",
}


def test_garbage_disturbs_nobody(slow):
    url, scheduler, service = slow
    host, port = url.removeprefix("http://").split(":")
    body = {"model": "toy", "prompt": "x", "max_tokens": 20, "stream": True}
    with httpx.stream("POST", f"{url}/v1/completions", json=body) as response:
        lines = response.iter_lines()
        next(lines)
        for data in GARBAGE.values():
            with socket.create_connection((host, int(port))) as connection:
                connection.sendall(data)
        assert [line for line in lines if line][-1] == "data: [DONE]"
    eventually(lambda: not scheduler.open and not service.exchanges)
    assert len(scheduler.jobs) == 1
    assert httpx.get(f"{url}/health").status_code == 200
