"""What the server promises, measured on a real model: python benchmarks/serving.py equality tpot second-turn ...

    equality     answers over HTTP are the library's, ids and texts, by every route: alone, and eight at a time with
                 others joining and leaving
    tpot         one client: time per token of the server against the library's, in turns
    second-turn  time to the first token of a chat's second turn, with the prefix cache against without, where
                 the first answer was greedy and where it was sampled
    isolation    what one key asked is no other key's, bytes per key stay in their limit, and NaN in all memory that
                 rows and evicted prefixes leave behind changes no output
    disconnect   passes that a request still gets after its client has gone
    soak         many streaming clients, a third of which leave early: errors, memory, rows left running
    tools        calls of functions: valid, the same with and without speculation, and how fast, in turns

Each starts a server of its own. Throughput at several concurrencies: `medusa bench serve --toggle`.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from served import CHAT, GENERATE, Served, frames
from serving_equality import equality
from serving_isolation import isolation
from serving_tools import tools

from medusakit.bench.circumstances import machine, versions
from medusakit.bench.workloads import load_suite
from medusakit.llm import LLM
from medusakit.settings import SamplingParams

ROWS = 8
FILLER = "The river rises in the hills, runs past three mills and a ford, and floods the meadows every spring. "


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
    with server.stream(CHAT, body | {"stream_options": {"include_usage": True}}) as documents:
        for document in documents:
            if any(choice["delta"].get("content") for choice in document["choices"]):
                times.append(time.perf_counter())
            count = document["usage"]["completion_tokens"] if document.get("usage") else count
    return 1e3 * (times[-1] - times[0]) / (count - 1)


def second_turn(options: argparse.Namespace) -> dict[str, Any]:
    """Chats of about 1,000 tokens, the first answer of every other one sampled: its text may be cut into other tokens
    than those it was made of. Without the cache: the same messages under a key that has asked nothing yet."""
    found = []
    keys = ("key-a", *(f"key-{place}" for place in range(options.chats)))
    with Served(options.model, "--weights", options.weights, keys=keys) as server:
        for place in range(options.chats):
            opening = {"role": "user", "content": f"Chapter {place}. {FILLER * 38}\nWhat is told here, in detail?"}
            body = {"messages": [opening], "max_tokens": 100, "temperature": float(place % 2), "seed": place}
            first = server.post(CHAT, body, keys[0])
            reply = first["choices"][0]["message"]["content"]
            messages = [opening, {"role": "assistant", "content": reply}, {"role": "user", "content": "And in short?"}]
            without_ms, cold = first_token(server, messages, keys[1 + place])
            with_ms, warm = first_token(server, messages, keys[0])
            about = {"sampled": place % 2 == 1, "chat_tokens": first["usage"]["total_tokens"]} | _cached(warm, cold)
            found.append(about | {"with_ms": with_ms, "without_ms": without_ms, "ratio": with_ms / without_ms})
    return {
        "chats": found,
        **{name: _by_kind(found, sampled) for name, sampled in (("greedy", False), ("sampled", True))},
        "cached_tokens_other_key": max(one["cached_other_key"] for one in found),
    }


def _by_kind(chats: Sequence[dict[str, Any]], sampled: bool) -> dict[str, float]:
    """lost: tokens of the chat that its second turn ran again; the last of an answer is in no row's KV."""
    kind = [one for one in chats if one["sampled"] is sampled]
    if not kind:
        return {}
    ratios = [one["ratio"] for one in kind]
    most_lost = max(one["chat_tokens"] - one["cached"] for one in kind)
    return {"ratio_median": statistics.median(ratios), "ratio_worst": max(ratios), "most_lost": most_lost}


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
    with server.stream(CHAT, body, key) as documents:
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
            with server.stream(GENERATE, body) as documents:
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
        "after_a_minute_mb": [min(settled), max(settled)],
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
    with server.asked(CHAT, body) as answer:
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
    "isolation": isolation,
    "disconnect": disconnect,
    "soak": soak,
    "tools": tools,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checks", nargs="+", choices=CHECKS)
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--weights", default="f32")
    parser.add_argument("--requests", type=int, default=200, help="of equality")
    parser.add_argument("--questions", type=int, default=16, help="of tpot, isolation and tools")
    parser.add_argument("--max-tokens", type=int, default=128, help="of tpot")
    parser.add_argument("--chats", type=int, default=6, help="of second-turn; four times as many of disconnect")
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
