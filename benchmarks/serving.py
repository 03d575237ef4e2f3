"""What the server promises, measured on a real model: python benchmarks/serving.py equality tpot second-turn ...

    equality     answers over HTTP are the library's: alone, and eight at a time with others joining and leaving
    tpot         one client: time per token of the server against the library's, in turns
    second-turn  time to the first token of a chat's second turn, with the prefix cache against without; keys kept apart
    disconnect   passes that a request still gets after its client has gone
    soak         many streaming clients, a third of which leave early: errors, memory, rows left running

Each starts a server of its own. Throughput at several concurrencies: `medusa bench serve --toggle`.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from served import Served, frames

from medusakit.bench.circumstances import machine, versions
from medusakit.bench.workloads import load_suite
from medusakit.llm import LLM
from medusakit.settings import SamplingParams

ROWS = 8
FILLER = "The river rises in the hills, runs past three mills and a ford, and floods the meadows every spring. "


def equality(options: argparse.Namespace) -> dict[str, Any]:
    """200 requests of a fixed mix, each compared with the library."""
    asked = requests(options.requests, options.seed)
    with LLM.load(options.model, weights=options.weights) as llm:
        wanted = [by_library(llm, one) for one in asked]
    with Served(options.model, "--weights", options.weights, "--max-rows", str(ROWS)) as server:
        alone = [by_server(server, one) for one in asked]
        with ThreadPoolExecutor(ROWS) as pool, Noise(server, options.seed):
            together = list(pool.map(lambda one: by_server(server, one), asked))
    differing = [place for place, ids in enumerate(wanted) if ids != alone[place] or ids != together[place]]
    return {
        "requests": len(asked),
        "tokens": sum(len(ids) for answer in wanted for ids in answer),
        "equal_alone": sum(mine == theirs for mine, theirs in zip(wanted, alone, strict=True)),
        "equal_together": sum(mine == theirs for mine, theirs in zip(wanted, together, strict=True)),
        "differing": differing,
    }


def requests(count: int, seed: int) -> list[dict[str, Any]]:
    """Bodies for /medusa/generate: greedy and sampled, with penalties, stops, filters and scores among them."""
    generator, found = random.Random(seed), []
    questions = load_suite("mt-bench")
    kinds: list[Callable[[], dict[str, Any]]] = [
        dict,
        lambda: {"temperature": 0.8},
        lambda: {"temperature": 1.0, "top_p": 0.9, "top_k": 40},
        lambda: {"repetition_penalty": 1.2},
        lambda: {"temperature": 0.7, "presence_penalty": 0.5, "frequency_penalty": 0.3},
        lambda: {"stop": [generator.choice(["\n\n", ". ", " the "])]},
        lambda: {"temperature": 1.2, "min_p": 0.05, "logprobs": 3},
        lambda: {"medusa": {"budget": generator.choice([1, 3, 8])}},
    ]
    for place in range(count):
        body: dict[str, Any] = {"messages": [{"role": "user", "content": questions[place % len(questions)].turns[0]}]}
        body |= {"max_tokens": generator.randint(16, 48), "seed": generator.randrange(2**32)}
        found.append(body | kinds[place % len(kinds)]())
    return found


def by_library(llm: LLM, body: dict[str, Any]) -> list[list[int]]:
    given = {name: value for name, value in body.items() if name not in ("messages", "medusa", "stop")}
    result = llm.generate(body["messages"], SamplingParams(**given, stop=tuple(body.get("stop", ()))))
    return [[event.token_id for event in result.events]]


def by_server(server: Served, body: dict[str, Any]) -> list[list[int]]:
    return [[token["token_id"] for token in server.post("/medusa/generate", body)["tokens"]]]


class Noise:
    """Another client, whose requests join and are left before their end."""

    def __init__(self, server: Served, seed: int) -> None:
        self._server, self._random, self._stop = server, random.Random(seed), threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(self._random.uniform(0.05, 0.5)):
            body = {"prompt": f"Count to {self._random.randint(3, 99)}:", "max_tokens": 200, "temperature": 1.0}
            with self._server.stream("/medusa/generate", body) as documents:
                for _ in zip(range(self._random.randint(1, 20)), documents, strict=False):
                    pass


def tpot(options: argparse.Namespace) -> dict[str, Any]:
    """Streams of one client. The other process sleeps meanwhile; who goes first changes with every question."""
    questions = [question.turns[0] for question in load_suite("mt-bench", limit=options.questions)]
    rounds = []
    with (
        LLM.load(options.model, weights=options.weights) as llm,
        Served(options.model, "--weights", options.weights, "--max-rows", str(ROWS)) as server,
    ):
        for place, question in enumerate([questions[0], *questions]):
            both = [lambda text: library_tpot(llm, text, options), lambda text: server_tpot(server, text, options)]
            order = (0, 1) if place % 2 else (1, 0)
            times = {which: both[which](question) for which in order}
            if place:  # the first is a warm-up
                rounds.append((times[0], times[1]))
    ratios = [server_ms / library_ms for library_ms, server_ms in rounds]
    return {
        "questions": len(rounds),
        "library_tpot_ms": statistics.median(library_ms for library_ms, _ in rounds),
        "server_tpot_ms": statistics.median(server_ms for _, server_ms in rounds),
        "ratio_median": statistics.median(ratios),
        "ratio_of_sums": sum(server_ms for _, server_ms in rounds) / sum(library_ms for library_ms, _ in rounds),
    }


def library_tpot(llm: LLM, text: str, options: argparse.Namespace) -> float:
    first, count = 0.0, 0
    with llm.stream(text, SamplingParams(max_tokens=options.max_tokens)) as stream:
        for _ in stream:
            first = first or time.perf_counter()
            count += 1
        return 1e3 * (time.perf_counter() - first) / (count - 1)


def server_tpot(server: Served, text: str, options: argparse.Namespace) -> float:
    body = {"messages": [{"role": "user", "content": text}], "max_tokens": options.max_tokens}
    times, count = [], 0
    with server.stream("/v1/chat/completions", body | {"stream_options": {"include_usage": True}}) as documents:
        for document in documents:
            if any(choice["delta"].get("content") for choice in document["choices"]):
                times.append(time.perf_counter())
            count = document["usage"]["completion_tokens"] if document.get("usage") else count
    return 1e3 * (times[-1] - times[0]) / (count - 1)


def second_turn(options: argparse.Namespace) -> dict[str, Any]:
    """Chats of about 1,000 tokens. Without the cache: the same messages under a key that has asked nothing yet."""
    found = []
    keys = ("key-a", *(f"key-{place}" for place in range(options.chats)))
    with Served(options.model, "--weights", options.weights, keys=keys) as server:
        for place in range(options.chats):
            opening = {"role": "user", "content": f"Chapter {place}. {FILLER * 38}\nWhat is told here, in detail?"}
            first = server.post("/v1/chat/completions", {"messages": [opening], "max_tokens": 100}, keys[0])
            reply = first["choices"][0]["message"]["content"]
            messages = [opening, {"role": "assistant", "content": reply}, {"role": "user", "content": "And in short?"}]
            without_ms, cold = first_token(server, messages, keys[1 + place])
            with_ms, warm = first_token(server, messages, keys[0])
            total = first["usage"]["total_tokens"]
            found.append({"chat_tokens": total, "with_ms": with_ms, "without_ms": without_ms, **_cached(warm, cold)})
    return {
        "chats": found,
        "ratio_median": statistics.median(one["with_ms"] / one["without_ms"] for one in found),
        "cached_tokens_other_key": max(one["cached_other_key"] for one in found),
    }


def _cached(warm: dict[str, Any], cold: dict[str, Any]) -> dict[str, int]:
    return {
        "prompt_tokens": warm["prompt_tokens"],
        "cached": warm["prompt_tokens_details"]["cached_tokens"],
        "cached_other_key": cold["prompt_tokens_details"]["cached_tokens"],
    }


def first_token(server: Served, messages: list[dict[str, str]], key: str) -> tuple[float, dict[str, Any]]:
    """Milliseconds from asking to the first text, and the usage."""
    body = {"messages": messages, "max_tokens": 8, "stream_options": {"include_usage": True}}
    started, first_ms = time.perf_counter(), 0.0
    usage: dict[str, Any] = {}
    with server.stream("/v1/chat/completions", body, key) as documents:
        for document in documents:
            if not first_ms and any(choice["delta"].get("content") for choice in document["choices"]):
                first_ms = 1e3 * (time.perf_counter() - started)
            usage = document.get("usage") or usage
    return first_ms, usage


def disconnect(options: argparse.Namespace) -> dict[str, Any]:
    """Passes that the row made after the last one that its client has read. One may be under way when it goes."""
    further = []
    with Served(options.model, "--weights", options.weights) as server:
        for place in range(options.chats * 4):
            before = server.state()["scheduler"]["totals"]["row_steps"]
            body = {"prompt": f"Tell story number {place}.", "max_tokens": 400, "temperature": 1.0, "seed": place}
            with server.stream("/medusa/generate", body) as documents:
                for read in documents:
                    last = read["tokens"][-1]["step"]
                    if last >= 5 + place:
                        break
            time.sleep(0.5)
            state = server.state()["scheduler"]
            further.append(state["totals"]["row_steps"] - before - last)
    return {"requests": len(further), "further_passes": further, "left_running": state["running"] + state["waiting"]}


def soak(options: argparse.Namespace) -> dict[str, Any]:
    """Clients ask again and again until the time is over. Memory is the server's, a minute for its cache apart."""
    questions = [question.turns[0] for question in load_suite("mt-bench")]
    tally, stop = Tally(), time.monotonic() + 60 * options.minutes
    flags = ("--weights", options.weights, "--max-rows", str(ROWS), "--cache-memory", "64", "--max-queue", "64")
    with Served(options.model, *flags) as server:
        clients = [
            threading.Thread(target=client, args=(server, questions, random.Random(place), stop, tally))
            for place in range(options.clients)
        ]
        for one in clients:
            one.start()
        memory = []
        while time.monotonic() < stop:
            time.sleep(min(5.0, max(0.0, stop - time.monotonic())))
            memory.append(round(server.resident_mb(), 1))
        for one in clients:
            one.join()
        time.sleep(0.5)
        after = server.state()["scheduler"]
    settled = memory[12:] or memory
    return {
        "clients": options.clients,
        "minutes": options.minutes,
        **vars(tally),
        "resident_mb": memory,
        "growth": statistics.fmean(settled[-6:]) / statistics.fmean(settled[:6]) - 1.0,
        "left_running": after["running"] + after["waiting"],
        "finished": after["totals"]["finished"],
    }


class Tally:
    def __init__(self) -> None:
        self.answered = self.left = self.refused = self.chunks = 0
        self.errors: list[str] = []


def client(server: Served, questions: Sequence[str], generator: random.Random, stop: float, tally: Tally) -> None:
    """One after the other; every third request is left at a random place. A refusal (429) is waited out as asked."""
    while time.monotonic() < stop:
        leaves = generator.random() < 1 / 3
        body = {
            "messages": [{"role": "user", "content": generator.choice(questions)}],
            "max_tokens": generator.randint(8, 96),
            "temperature": generator.choice([0.0, 0.8]),
            "stream": True,
        }
        try:
            _one_stream(server, body, generator.randint(0, 12) if leaves else None, tally)
        except (OSError, ValueError) as error:
            tally.errors.append(f"{type(error).__name__}: {error}")


def _one_stream(server: Served, body: dict[str, Any], leave_after: int | None, tally: Tally) -> None:
    with server.asked("/v1/chat/completions", body) as answer:
        if answer.status == 429:
            tally.refused += 1
            return time.sleep(float(answer.headers["retry-after"]))
        if answer.status != 200:
            return tally.errors.append(f"{answer.status}: {answer.read().decode()[:200]}")
        last = ""
        for count, data in enumerate(frames(answer)):
            if count == leave_after:
                tally.left += 1
                return None
            if '"error"' in data:
                tally.errors.append(data[:200])
            tally.chunks, last = tally.chunks + 1, data
    if last == "[DONE]":
        tally.answered += 1
    else:
        tally.errors.append(f"a stream ended with {last[:80]!r}")
    return None


CHECKS = {
    "equality": equality,
    "tpot": tpot,
    "second-turn": second_turn,
    "disconnect": disconnect,
    "soak": soak,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checks", nargs="+", choices=CHECKS)
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--weights", default="f32")
    parser.add_argument("--requests", type=int, default=200, help="of equality")
    parser.add_argument("--questions", type=int, default=16, help="of tpot")
    parser.add_argument("--max-tokens", type=int, default=128, help="of tpot")
    parser.add_argument("--chats", type=int, default=5, help="of second-turn; four times as many of disconnect")
    parser.add_argument("--clients", type=int, default=64, help="of soak")
    parser.add_argument("--minutes", type=float, default=10.0, help="of soak")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    document: dict[str, Any] = {"machine": machine(), "versions": versions()}
    for check in options.checks:
        document[check] = CHECKS[check](options)
        print(json.dumps({check: document[check]}, indent=2), flush=True)
        if options.json:
            options.json.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
