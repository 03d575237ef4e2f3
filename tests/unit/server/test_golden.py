"""Whole streams to the letter. After an intended change: PYTHONPATH=tests python tests/unit/server/test_golden.py,
which writes golden/ anew, and read the difference."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest

from medusakit.errors import RuntimeFailure
from server_fakes import FakeScheduler, listening, scripted, service_of

GOLDEN = Path(__file__).parent / "golden"
AGAIN = "PYTHONPATH=tests python tests/unit/server/test_golden.py"
SAID = 'A héap — of 木. Then "an end".\n'
ROOM = len(SAID.encode())  # of a prompt: the scripted model counts positions, so an answer then begins with SAID
QUESTION = "Why is it called a heap, then?"[: ROOM + 1 - len("user: \nassistant: ")]
OPENING = "Once upon a time, in a land by the sea, "[:ROOM]
HELD = 7  # tokens of an answer that something happens to


def fail(url: str, scheduler: FakeScheduler) -> None:
    scheduler.failing = RuntimeFailure("the disk is on fire")


def cancel(url: str, scheduler: FakeScheduler) -> None:
    assert httpx.delete(f"{url}/v1/requests/golden").status_code == 200


@dataclass(frozen=True)
class Case:
    """chat, completion: what the bodies hold. then: done when HELD tokens have been told."""

    chat: dict[str, Any] = field(default_factory=dict)
    completion: dict[str, Any] = field(default_factory=dict)
    headers: dict[str, str] = field(default_factory=dict)
    then: Callable[[str, FakeScheduler], None] | None = None


def both(**options: Any) -> Case:
    return Case(options, options)


CASES = {
    "plain": both(),
    "usage": both(stream_options={"include_usage": True}),
    "stop": both(stop=[" of", "Then"]),
    "length": both(max_tokens=5),
    "two": both(n=2, seed=1, stream_options={"include_usage": True}),
    "logprobs": Case({"logprobs": True, "top_logprobs": 2, "max_tokens": 6}, {"logprobs": 2, "max_tokens": 6}),
    "detail": Case({"max_tokens": 9}, {"max_tokens": 9}, {"x-medusa-detail": "1"}),
    "failed": Case(then=fail),
    "cancelled": Case(then=cancel),
}
ROUTES = {"chat": "/v1/chat/completions", "completion": "/v1/completions"}
NAMES = [f"{route}-{case}" for route in ROUTES for case in CASES]


def transcript(name: str) -> str:
    """The body of the stream that a fresh server sends, without what differs from one time to the next."""
    route, case = name.split("-")[0], CASES[name.split("-")[1]]
    body = {"model": "toy", "max_tokens": 60, "stream": True} | (case.chat if route == "chat" else case.completion)
    body |= {"messages": [{"role": "user", "content": QUESTION}]} if route == "chat" else {"prompt": OPENING}
    hold_at = HELD if case.then else None
    service, scheduler = service_of(scripted(SAID, ends=True), together=body.get("n", 1), hold_at=hold_at)
    headers = {"x-request-id": "golden"} | case.headers
    with listening(service) as url, httpx.stream("POST", url + ROUTES[route], json=body, headers=headers) as response:
        if case.then is not None:
            wait_for(lambda: scheduler.open[0].told >= HELD)
            case.then(url, scheduler)
        text = response.read().decode()
    scheduler.close()
    return normalised(text)


def wait_for(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.002)


def normalised(text: str) -> str:
    """Ids, times and speeds out; probabilities to four places, as far as all machines agree."""
    text = re.sub(r'"id": "(\w+)-[0-9a-f]{24}"', r'"id": "\1-ID"', text)
    text = re.sub(r'"created": \d+', '"created": 0', text)
    text = re.sub(r'"(\w+_ms|\w+_per_second)": [-+.e\d]+', r'"\1": 0.0', text)
    return re.sub(r"-?\d+\.\d{5,}(e-\d+)?", lambda number: f"{float(number[0]):.4f}", text)


@pytest.mark.parametrize("name", NAMES)
def test_stream_is_the_golden_one(name: str) -> None:
    assert transcript(name) == (GOLDEN / f"{name}.txt").read_text("utf-8"), f"intended? {AGAIN}"


def test_every_transcript_is_of_a_case() -> None:
    assert sorted(path.stem for path in GOLDEN.iterdir()) == sorted(NAMES)


if __name__ == "__main__":
    for name in NAMES:
        (GOLDEN / f"{name}.txt").write_text(transcript(name), "utf-8")
