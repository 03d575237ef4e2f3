"""For benchmarks/serving.py: what one request or one key leaves behind is out of every other's reach."""

from __future__ import annotations

import argparse
import threading
from dataclasses import replace
from typing import Any

import numpy as np
from served import CHAT, Served

from medusakit.bench.workloads import load_suite
from medusakit.engine.jobs import Job, SchedulerSettings, Update
from medusakit.engine.prefixes import PrefixCache
from medusakit.engine.scheduler import Scheduler
from medusakit.llm import LLM
from medusakit.runtimes.onnx.runtime import OnnxRuntime
from medusakit.settings import SamplingParams

KEY_MIB = 32
ROWS, NOISE_MIB = 8, 48
LEAVE_EVERY = 5  # of these jobs one is cancelled after some tokens


def isolation(options: argparse.Namespace) -> dict[str, Any]:
    return {"keys": keys(options), "freed_memory": freed_memory(options)}


def keys(options: argparse.Namespace) -> dict[str, Any]:
    """Prompts of about 200 tokens, more than a key may keep; each asked twice under one key, then under another. What
    every chat begins with, the other key may have left itself: no more than the first found of its own."""
    flags = ("--weights", options.weights, "--cache-memory-per-key", str(KEY_MIB))
    cached: dict[str, list[int]] = {"first": [], "again": [], "other_key": []}
    most = 0
    with Served(options.model, *flags, keys=("key-a", "key-b")) as server:
        for question in load_suite("mt-bench", limit=options.questions):
            messages = [{"role": "user", "content": f"{question.turns[0]}\n" * 4}]
            for name, key in (("first", "key-a"), ("again", "key-a"), ("other_key", "key-b")):
                usage = server.post(CHAT, {"messages": messages, "max_tokens": 2}, key)["usage"]
                cached[name].append(usage["prompt_tokens_details"]["cached_tokens"])
                cache = server.idle(key)["cache"]
                most = max([most, *cache["bytes_by_key"].values()])
    pairs = list(zip(cached["other_key"], cached["first"], strict=True))
    return {
        "prompts": options.questions,
        "cached_tokens": cached,
        "first_of_other_key": cached["other_key"][0],
        "leaked_tokens": sum(max(0, other - own) for other, own in pairs),
        "found_again": sum(again > first for again, first in zip(cached["again"], cached["first"], strict=True)),
        "evictions": cache["evictions"],
        "most_mib_of_a_key": most / 2**20,
        "limit_mib": KEY_MIB,
    }


def freed_memory(options: argparse.Namespace) -> dict[str, Any]:
    """The same jobs twice, in batches of eight that they join and leave; the second time all that they leave behind,
    rows and evicted prefixes, is filled with NaN at once."""
    clean, _ = _answers(options, poison=False)
    poisoned, filled = _answers(options, poison=True)
    return {
        "jobs": len(clean),
        "tokens": sum(map(len, clean)),
        "equal": sum(one == other for one, other in zip(clean, poisoned, strict=True)),
        "rows_filled": filled["rows"],
        "prefixes_filled": filled["prefixes"],
        "mib_filled": round(filled["bytes"] / 2**20),
    }


def _answers(options: argparse.Namespace, *, poison: bool) -> tuple[list[tuple[int, ...]], dict[str, int]]:
    filled = {"rows": 0, "prefixes": 0, "bytes": 0}
    with LLM.load(options.model, weights=options.weights, max_rows=ROWS) as llm:
        scheduler = Scheduler(llm, SchedulerSettings(max_rows=ROWS, max_queue=10_000, cache_bytes=NOISE_MIB << 20))
        if poison:
            _poison_rows(llm.engine.runtime, filled)
            _poison_prefixes(scheduler._batch.cache, filled)
        answers = [_Answer(scheduler, job, leave) for job, leave in _jobs(llm, options)]
        scheduler.start()
        try:
            return [answer.ids() for answer in answers], filled
        finally:
            scheduler.close()


def _jobs(llm: LLM, options: argparse.Namespace) -> list[tuple[Job, int | None]]:
    """First and second turns, greedy and sampled; tokens after which a job is left, of every fifth."""
    found = []
    for place, question in enumerate(load_suite("mt-bench", limit=2 * options.questions)):
        params = SamplingParams(max_tokens=24 + place % 40, temperature=(0.0, 0.8)[place % 2], seed=place)
        first = [{"role": "user", "content": question.turns[0]}]
        second = [*first, {"role": "assistant", "content": "Gladly."}, {"role": "user", "content": question.turns[1]}]
        for messages in (first, second):
            job = Job(tuple(llm.encode(messages)), replace(params, seed=len(found)))
            found.append((job, 1 + place % 7 if len(found) % LEAVE_EVERY == 0 else None))
    return found


class _Answer:
    """One job's tokens, until it has ended. One that is left counts up to there: where it ends is a matter of time."""

    def __init__(self, scheduler: Scheduler, job: Job, leave: int | None) -> None:
        self._ids: list[int] = []
        self._leave, self._ended = leave, threading.Event()
        self._ticket = scheduler.submit(job, self._told)

    def ids(self) -> tuple[int, ...]:
        self._ended.wait()
        return tuple(self._ids[: self._leave])

    def _told(self, update: Update) -> None:
        self._ids += [event.token_id for event in update.events]
        if self._leave is not None and len(self._ids) >= self._leave:
            self._ticket.cancel()
        if update.last:
            self._ended.set()


def _poison_rows(runtime: Any, filled: dict[str, int]) -> None:
    """NaN in all that rows have left, whenever one leaves: what is written of free slots, and what lies behind them."""
    assert isinstance(runtime, OnnxRuntime)
    drop = runtime.drop_row

    def drop_and_fill(row: int) -> None:
        drop(row)
        kv = runtime._kv
        for laid, memory in ((kv.keys, kv._memory.keys), (kv.values, kv._memory.values)):
            left = [laid[:, slot, ..., : kv._written[slot], :] for slot in range(len(runtime.rows), kv.num_slots)]
            for cells in (*left, memory[laid.size :]):
                cells[...] = np.nan
                filled["bytes"] += cells.nbytes
        filled["rows"] += 1

    runtime.drop_row = drop_and_fill  # type: ignore[method-assign]


def _poison_prefixes(cache: PrefixCache, filled: dict[str, int]) -> None:
    evict = cache._evict

    def evict_and_fill(entry: Any) -> None:
        evict(entry)
        for array in entry.memory.arrays:
            array[...] = np.nan
            filled["bytes"] += array.nbytes
        filled["prefixes"] += 1

    cache._evict = evict_and_fill  # type: ignore[method-assign]
