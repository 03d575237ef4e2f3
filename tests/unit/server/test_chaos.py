"""Trouble under load, with the real scheduler: the process is told to stop."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest

from medusakit.errors import RuntimeFailure
from medusakit.server.run import listen
from tiny import write_hf
from vocabularies import byte_backend

STREAMS = 4


def wait_for(condition: Callable[[], bool], seconds: float = 120.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.005)


def read(url: str, path: str, body: dict[str, Any], begun: threading.Semaphore) -> list[str]:
    """The events of a stream. begun: released at the first."""
    found: list[str] = []
    with httpx.stream("POST", url + path, json=body | {"stream": True}, timeout=120) as response:
        assert response.status_code == 200
        for line in response.iter_lines():
            if line.startswith("data: "):
                found.append(line.removeprefix("data: "))
                if len(found) == 1:
                    begun.release()
    return found


def under_load(
    url: str, path: str, bodies: Sequence[dict[str, Any]], pool: ThreadPoolExecutor
) -> list[Future[list[str]]]:
    """The streams, when each of them has begun."""
    begun = threading.Semaphore(0)
    streams = [pool.submit(read, url, path, body, begun) for body in bodies]
    for _ in streams:
        assert begun.acquire(timeout=120)
    return streams


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """Of random weights and with one token a byte, as a folder that `medusa serve` takes."""
    folder = write_hf(tmp_path / "m", "llama", seed=3, vocab_size=261, max_position_embeddings=4096)
    byte_backend().save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<|im_end|>"}))
    return folder


@contextmanager
def started(model: Path) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """`medusa serve` on its own."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "medusakit", "serve", "-m", str(model), "--port", str(port), "--drain", "100"]
    places = {name: str(model.parent) for name in ("HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME")}
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=os.environ | places) as found:
        url = f"http://127.0.0.1:{port}"
        try:
            yield url, found
        finally:
            found.kill()


@pytest.fixture
def process(model: Path) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """Ready."""
    with started(model) as (url, found):
        wait_for(lambda: found.poll() is not None or answers(url, "/ready"))
        assert found.poll() is None, found.stderr and found.stderr.read()
        yield url, found


def answers(url: str, path: str) -> bool:
    try:
        return httpx.get(url + path).status_code == 200
    except httpx.TransportError:
        return False


def test_a_stop_under_load_lets_open_streams_end_whole(process: tuple[str, subprocess.Popen[str]]) -> None:
    url, serve = process
    body = {"model": "m", "prompt": "Once", "max_tokens": 1000, "temperature": 1.0, "ignore_eos": True, "seed": 1}
    bodies = [body | {"seed": seed, "stream_options": {"include_usage": True}} for seed in range(STREAMS)]
    name = httpx.get(f"{url}/v1/models").json()["data"][0]["id"]
    bodies = [one | {"model": name} for one in bodies]
    with ThreadPoolExecutor(STREAMS) as pool:
        streams = under_load(url, "/v1/completions", bodies, pool)
        serve.send_signal(signal.SIGTERM)
        wait_for(lambda: httpx.get(f"{url}/ready").status_code == 503)
        refused = httpx.post(f"{url}/v1/completions", json=bodies[0])
        assert not any(stream.done() for stream in streams)
        told = [stream.result() for stream in streams]
    assert (refused.status_code, refused.json()["error"]["code"]) == (503, "draining")
    for events in told:
        assert events[-1] == "[DONE]"
        assert json.loads(events[-2])["usage"]["completion_tokens"] == body["max_tokens"]
        assert json.loads(events[-3])["choices"][0]["finish_reason"] == "length"
    assert serve.wait(60) == 0


def test_a_second_signal_ends_at_once_and_is_no_fault(process: tuple[str, subprocess.Popen[str]]) -> None:
    url, serve = process
    name = httpx.get(f"{url}/v1/models").json()["data"][0]["id"]
    body = {"model": name, "prompt": "Once", "max_tokens": 3500, "temperature": 1.0, "ignore_eos": True}
    with ThreadPoolExecutor(1) as pool:
        (stream,) = under_load(url, "/v1/completions", [body], pool)
        serve.send_signal(signal.SIGTERM)
        wait_for(lambda: httpx.get(f"{url}/ready").status_code == 503)
        serve.send_signal(signal.SIGINT)
        assert serve.wait(60) == 0  # --drain is longer
        assert isinstance(stream.exception(), httpx.TransportError)
    assert serve.stderr is not None
    told = serve.stderr.read()
    assert "Traceback" not in told and "some requests were cut off" in told and '"all_done": false' in told


@pytest.mark.parametrize("after_s", [0.0, 0.2, 0.4])
def test_a_stop_while_the_model_is_loaded_is_no_fault(model: Path, after_s: float) -> None:
    with started(model) as (url, serve):
        wait_for(lambda: answers(url, "/health"))
        time.sleep(after_s)
        serve.send_signal(signal.SIGTERM)
        assert serve.wait(60) == 0
        assert serve.stderr is not None and "error" not in serve.stderr.read()


def test_an_address_is_taken_from_the_start() -> None:
    with listen("127.0.0.1", 0) as first, pytest.raises(RuntimeFailure, match="(?i)already in use"):
        listen(*first.getsockname())
    for host in ("nosuch.invalid", "a..b", "a" * 70):
        with pytest.raises(RuntimeFailure, match="cannot listen on"):
            listen(host, 0)
