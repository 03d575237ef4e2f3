"""Answers from a server: what is asked, what is believed, what goes on after a cut, what is said of failures."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fakes import EOS
from medusakit.artifact.schema import Backbone
from medusakit.errors import DatasetError, RuntimeFailure, UsageError
from medusakit.runtimes.reference import random_reference
from medusakit.runtimes.reference_source import random_source
from medusakit.train.answers import read_answers
from medusakit.train.capture import capture
from medusakit.train.dataset import Dataset
from medusakit.train.distill import DistillConfig
from medusakit.train.endpoint import Endpoint
from medusakit.train.endpoint_answers import EndpointConfig, answer_remotely, end_id, endpoint_of
from medusakit.train.templates import Conversation
from server_fakes import ChatBytes, listening, random_engine, scripted, service_of

CONFIG = DistillConfig(max_new_tokens=12, sampled_share=0.0)
SEEDS = [Conversation((f"question {n}", *["and?"][: n % 2]), "own", "MIT") for n in range(6)]


class Server(ThreadingHTTPServer):
    """Answers with what `replies` holds in turn: (status, headers, body)."""

    daemon_threads = True

    def __init__(self, *replies: tuple[int, dict[str, str], Any]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.replies, self.asked = list(replies), list[Any]()
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        self._reply(200, {}, {"data": [{"id": "toy"}]})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.asked.append((self.headers.get("Authorization"), body))
        self._reply(*(self.server.replies.pop(0) if len(self.server.replies) > 1 else self.server.replies[0]))

    def _reply(self, status: int, headers: dict[str, str], body: Any) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(data))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:
        """Quiet."""


def said(text: str, num_tokens: int = 0, reason: str = "stop") -> tuple[int, dict[str, str], Any]:
    choice = {"message": {"content": text}, "finish_reason": reason}
    return 200, {}, {"choices": [choice], "usage": {"completion_tokens": num_tokens}}


BUSY = (429, {"Retry-After": "3"}, {"error": "busy"})


@pytest.fixture(scope="module")
def our_url() -> Iterator[str]:
    service, scheduler = service_of(scripted("A plain answer. "))
    with listening(service) as url:
        yield url
    scheduler.close()


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def ask(url: str, out: Path, seeds: list[Conversation] = SEEDS, config: DistillConfig = CONFIG, **more: Any) -> Any:
    return answer_remotely(Endpoint(url, **more), ChatBytes(), seeds, out, config, concurrency=3)  # type: ignore[arg-type]


def test_our_own_server_answers_every_turn(our_url: str, tmp_path: Path) -> None:
    report = ask(our_url, tmp_path / "a.jsonl")
    found = lines(tmp_path / "a.jsonl")
    assert report.num == len(found) == 6
    assert report.num_tokens == sum(len(gen) for entry in found for gen in entry["gens"])
    assert sorted(entry["turns"][0] for entry in found) == [seed.turns[0] for seed in SEEDS]
    assert all(len(entry["gens"]) == len(entry["turns"]) for entry in found)
    assert all(ChatBytes().decode(gen) in "A plain answer. " * 3 for entry in found for gen in entry["gens"])


def test_captured_states_choose_what_the_server_said(tmp_path: Path) -> None:
    """The same random model behind HTTP and here. Most of its bytes are no text, and those answers are left out."""
    service, scheduler = service_of(random_engine(3))
    seeds = [Conversation((f"q{n}",), "own", "MIT") for n in range(24)]
    try:
        with listening(service) as url:
            report = ask(url, tmp_path / "a.jsonl", seeds, CONFIG.model_copy(update={"max_new_tokens": 2}))
    finally:
        scheduler.close()
    runtime = random_reference(3, 258, context_length=128)
    backbone = Backbone(name="toy", fingerprint="0" * 64, hidden_size=16, vocab_size=258)
    capture(runtime, ChatBytes(), tmp_path / "a.jsonl", tmp_path / "set", backbone=backbone)  # type: ignore[arg-type]
    samples = list(Dataset([tmp_path / "set"]))
    assert report.num == len(samples) > 0
    head = random_source(3, 258, context_length=128).arrays["lm_head"]
    for sample in samples:
        assert (head @ sample.hidden.astype(np.float32).T).argmax(0).tolist() == sample.gen.tolist()


def test_what_was_answered_is_not_asked_again(our_url: str, tmp_path: Path) -> None:
    out = tmp_path / "a.jsonl"
    ask(our_url, out, SEEDS[:4])
    with out.open("a") as file:
        file.write('{"turns": ["question 5"], "ge')  # a kill in the middle of a line
    before = out.read_text().splitlines()[:4]
    assert ask(our_url, out).num == 6
    assert out.read_text().splitlines()[:4] == before and len(lines(out)) == 6


def test_enough_tokens_end_it(our_url: str, tmp_path: Path) -> None:
    report = ask(our_url, tmp_path / "a.jsonl", SEEDS * 1, CONFIG.model_copy(update={"max_tokens": 20}))
    assert 20 <= report.num_tokens < 20 + 3 * 24


def test_the_end_token_stands_where_the_model_stopped(tmp_path: Path) -> None:
    server = Server(said("done"), said("cut", reason="length"))
    answer_remotely(Endpoint(server.url), ChatBytes(), [Conversation(("a", "b"), "own", "MIT")],  # type: ignore[arg-type]
                    tmp_path / "a.jsonl", CONFIG)  # fmt: skip
    assert lines(tmp_path / "a.jsonl")[0]["gens"] == [[*b"done", EOS], [*b"cut"]]
    assert end_id(ChatBytes()) == EOS  # type: ignore[arg-type]
    given = list(read_answers(tmp_path / "a.jsonl", ChatBytes()))  # type: ignore[arg-type]
    assert [answer.turn for answer in given] == [0, 1]


def test_busy_servers_are_waited_for(tmp_path: Path) -> None:
    waits: list[float] = []
    server = Server(BUSY, (503, {}, {}), said("yes"))
    assert Endpoint(server.url, "toy", sleep=waits.append).chat([{"role": "user", "content": "q"}]).text == "yes"
    assert waits == [3.0, 2.0]


def test_busy_to_the_end() -> None:
    with pytest.raises(RuntimeFailure, match="answered 429 to 3 tries") as error:
        Endpoint(Server(BUSY).url, "toy", retries=2, sleep=lambda s: None).chat([])
    assert "--concurrency" in str(error.value.hint)


def test_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    refused = Server((401, {}, {"error": "no"}))
    with pytest.raises(UsageError, match=r"wants an API key \(401\)") as error:
        Endpoint(refused.url, "toy").chat([])
    assert "--api-key-env" in str(error.value.hint)
    with pytest.raises(UsageError, match="refuses the API key"):
        Endpoint(refused.url, "toy", "secret").chat([])
    assert refused.asked[-1][0] == "Bearer secret"
    with pytest.raises(UsageError, match="NO_SUCH_KEY holds no API key"):
        endpoint_of(EndpointConfig(url="http://x", api_key_env="NO_SUCH_KEY"), {})
    assert endpoint_of(EndpointConfig(url="http://x", api_key_env="KEY"), {"KEY": "k"}).api_key == "k"


def test_servers_that_are_not_there_or_no_servers() -> None:
    with pytest.raises(RuntimeFailure, match="no server answers at http://127.0.0.1:9"):
        Endpoint("http://127.0.0.1:9", sleep=lambda s: pytest.fail("waited for a wrong address")).checked()
    with pytest.raises(UsageError, match="is no http address"):
        Endpoint("127.0.0.1:9").checked()
    with pytest.raises(DatasetError, match="has no text"):
        Endpoint(Server((200, {}, {"hello": 1})).url, "toy").chat([])
    with pytest.raises(DatasetError, match="does not answer as OpenAI's API"):
        Endpoint(Server((200, {}, [1])).url, "toy").chat([])
    with pytest.raises(UsageError, match="refuses the request .400.: .*too long"):
        Endpoint(Server((400, {}, {"error": "too long"})).url, "toy").chat([])


def test_the_model_must_be_served(our_url: str) -> None:
    assert Endpoint(our_url).checked().model == "toy"
    with pytest.raises(UsageError, match="does not serve 'other'; it serves: toy") as error:
        Endpoint(our_url, "other").checked()
    assert error.value.hint == "--endpoint-model toy"


def test_another_tokenizer_is_noticed(tmp_path: Path) -> None:
    seeds = [Conversation((f"q{n}",), "own", "MIT") for n in range(40)]
    with pytest.raises(DatasetError, match="another vocabulary"):
        ask(Server(said("a long answer", num_tokens=4)).url, tmp_path / "a.jsonl", seeds)


def test_text_that_does_not_come_back_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server(said(""), said("fine"))
    report = answer_remotely(Endpoint(server.url), ChatBytes(), SEEDS[:1] + SEEDS[2:3],  # type: ignore[arg-type]
                             tmp_path / "a.jsonl", CONFIG, concurrency=1)  # fmt: skip
    assert (report.num, report.dropped) == (1, {"empty": 1})
    monkeypatch.setattr(ChatBytes, "decode", lambda self, ids: "else")
    with pytest.raises(DatasetError, match="other text after tokenising"):
        ask(server.url, tmp_path / "b.jsonl", SEEDS[:1])
