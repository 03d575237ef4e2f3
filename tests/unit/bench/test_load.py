"""Load on a server: figures from times, and a server that speaks OpenAI's API for real."""

import asyncio

import pytest

from medusakit.bench.load import LoadConfig, Timed, address, ask_once, percentiles, point, reason, remedy, run_load
from medusakit.errors import RuntimeFailure, UsageError
from server_fakes import listening, scripted, service_of


def timed(sent, chunks, tokens, **more):
    return Timed(sent, list(chunks), chunks[-1] if chunks else sent, tokens, **more)


def test_figures_of_a_point():
    requests = [
        timed(0.0, [0.1, 0.2, 0.4], 7, timings={"draft_rounds": 2}),
        timed(1.0, [1.3, 1.5], 5, timings={"draft_rounds": 2}),
        timed(2.0, [], 0, error="refused"),
    ]
    found = point(2, requests, 2.0, (200.0, 60.0))
    assert (found["requests"], found["errors"], found["tokens_per_s"]) == (3, 1, 6.0)
    assert found["tokens_per_step"] == 10 / 4
    assert found["goodput"] == 0.5  # the second's first token came after 300 ms
    assert found["ttft_ms"]["p95"] == pytest.approx(300)
    assert found["tpot_ms"]["p50"] == pytest.approx(50)
    assert found["itl_ms"]["p50"] == pytest.approx(200)


def test_percentiles_are_measured_values():
    assert percentiles([]) == {"p50": None, "p95": None}
    assert percentiles([0.001 * value for value in range(1, 101)]) == {
        "p50": pytest.approx(51),
        "p95": pytest.approx(96),
    }


def test_a_server_under_load():
    service, scheduler = service_of(scripted("abc "))
    seen = []
    with listening(service) as url:
        config = LoadConfig(url, "toy", (1, 3), num_requests=4, max_tokens=12, slo_ms=(60_000, 60_000))
        document = run_load(config, ["one", "two"], lambda done, total, note: seen.append((done, total, note)))
    scheduler.close()
    assert [found["concurrency"] for found in document["points"]] == [1, 3]
    assert all((found["errors"], found["tokens"]) == (0, 48) for found in document["points"])
    assert all(found["tokens_per_step"] > 1 and found["goodput"] > 0 for found in document["points"])
    assert seen[-1] == (8, 8, "")


def test_refusals_are_errors():
    service, scheduler = service_of(scripted("abc "))
    with listening(service) as url, pytest.raises(RuntimeFailure) as told:
        run_load(LoadConfig(url, "other", (1,), num_requests=2), ["one"])
    scheduler.close()
    assert told.value.message.endswith("404 Not Found: model 'other' is not served here; served: toy")
    assert told.value.hint is not None and "-m NAME" in told.value.hint


@pytest.mark.parametrize(
    ("told", "part"),
    [
        ("401 Unauthorized: no", "MEDUSA_API_KEY"),
        ("403 Forbidden: no", "admin:KEY"),
        ("ConnectionRefusedError: [Errno 111]", "medusa serve -m"),
    ],
)
def test_the_remedy_is_that_of_the_failure(told: str, part: str):
    assert part in remedy(told)


def test_a_reason_of_another_shape_is_its_beginning():
    assert reason('{"detail": "no"}') == '{"detail": "no"}' and len(reason("x" * 900)) == 200


def test_a_point_has_as_many_requests_as_are_open_at_once():
    service, scheduler = service_of(scripted("abc "))
    with listening(service) as url:
        document = run_load(LoadConfig(url, "toy", (1, 5), num_requests=2, max_tokens=2), ["one"])
    scheduler.close()
    assert [found["requests"] for found in document["points"]] == [2, 5]


def test_requests_arrive_at_their_rate():
    service, scheduler = service_of(scripted("abc "))
    with listening(service) as url:
        document = run_load(LoadConfig(url, "toy", (8,), num_requests=5, rate=20.0, max_tokens=2), ["one"])
    scheduler.close()
    assert document["points"][0]["seconds"] > 0.05


@pytest.mark.parametrize("url", ["https://x", "ftp://x", "x:80", "http://"])
def test_addresses_that_are_none(url):
    with pytest.raises(UsageError, match="no http address"):
        address(url)
    assert address("http://h:81/v1") == ("h", 81)


def answered(*parts: bytes, usage: bool = True) -> Timed:
    """What is read from a server that sends the stream in these parts, each as one of HTTP's chunks."""
    body = [b'data: {"choices": [{"delta": {"content": "ab"}}]}\n\n', *parts]
    if usage:
        body.append(b'data: {"choices": [], "usage": {"completion_tokens": 7}}\n\n')
    body.append(b"data: [DONE]\n\n")

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        for part in body:
            writer.write(b"%x\r\n%s\r\n" % (len(part), part))
        writer.write(b"0\r\n\r\n")
        await writer.drain()
        writer.close()

    async def ask() -> Timed:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        async with server:
            port = server.sockets[0].getsockname()[1]
            return await ask_once(LoadConfig("", "toy"), "127.0.0.1", port, "one")

    return asyncio.run(ask())


def test_tokens_are_the_servers_usage_whatever_the_chunks_are():
    frame = b'data: {"choices": [{"delta": {"content": "cd"}}]}\n\n'
    found = answered(frame[:20], frame[20:])
    assert (found.error, found.tokens, len(found.chunks_s), found.text) == ("", 7, 2, "abcd")
    assert found.tpot_s == pytest.approx((found.chunks_s[1] - found.chunks_s[0]) / 6)


def test_a_server_that_tells_no_usage_gives_an_error_and_no_guess():
    found = answered(usage=False)
    assert "usage" in found.error and point(1, [found], 1.0, None)["tpot_ms"]["p50"] is None
