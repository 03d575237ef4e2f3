"""The scheduler on its own thread: many submitters, cancels from anywhere, nothing left behind."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable

import pytest

from engine_fakes import VOCAB, plain_engine
from medusakit.engine.jobs import Job, SchedulerSettings, Update
from medusakit.engine.scheduler import Scheduler
from medusakit.errors import QueueFullError
from medusakit.settings import SamplingParams
from scheduler_fakes import FakeLLM, Listening, alone, greedy, submit


def threaded(**settings: int) -> Scheduler:
    wanted = SchedulerSettings(**{"max_rows": 4, "prefill_chunk": 4, "cache_least_tokens": 1, **settings})
    batch = Scheduler(FakeLLM(plain_engine(max_rows=4)), wanted)
    batch.start()
    return batch


def test_submitters_on_several_threads_get_their_own_answers() -> None:
    batch = threaded(max_queue=64)
    jobs = [greedy(index % VOCAB, index % 5 + 1, max_tokens=5) for index in range(16)]
    heard = [Listening() for _ in jobs]

    def client(first: int) -> None:
        for index in range(first, 16, 4):
            batch.submit(jobs[index], heard[index])

    clients = [threading.Thread(target=client, args=(first,)) for first in range(4)]
    for thread in clients:
        thread.start()
    for thread in clients:
        thread.join()
    assert batch.drain(60)
    assert [one.tokens for one in heard] == [list(alone(job).token_ids) for job in jobs]
    batch.close()


def test_an_idle_thread_sleeps_and_wakes_for_a_job_and_for_a_switch() -> None:
    batch = threaded()
    batch.set_speculation(False)
    assert batch._switch.on is False
    listening = submit(batch, greedy(1, max_tokens=2))
    _until(lambda: listening.ended)
    assert listening.tokens == list(alone(greedy(1, max_tokens=2)).token_ids)
    batch.close()
    batch.close()  # a second time does nothing


def test_what_is_done_while_nothing_is_open_has_the_inference_thread_and_may_fail() -> None:
    calls = []

    def idle() -> None:
        calls.append((threading.current_thread().name, len(batch._engine.runtime.rows)))
        raise ValueError("a fault of its own")

    settings = SchedulerSettings(max_rows=4)
    batch = Scheduler(FakeLLM(plain_engine(max_rows=4)), settings, on_idle=idle, idle_s=0.01)
    batch.start()
    _until(lambda: len(calls) >= 2)
    listening = submit(batch, greedy(1, max_tokens=2))
    _until(lambda: listening.ended)
    assert listening.tokens == list(alone(greedy(1, max_tokens=2)).token_ids)
    batch.close()
    assert set(calls) == {("medusa-inference", 0)}


def test_a_listener_may_submit_cancel_and_switch() -> None:
    """It is on the inference thread, so none of these may wait for that."""
    batch = threaded()
    second = Listening()

    def then(update: Update) -> None:
        if len(first.updates) == 1:
            batch.submit(greedy(2, max_tokens=3), second)
            batch.set_speculation(False)
        if len(first.updates) == 3 and first.ticket is not None:
            first.ticket.cancel()

    first = Listening(then=then)
    first.ticket = batch.submit(greedy(1, max_tokens=50), first)
    _until(lambda: first.ended and second.ended)
    assert first.result.finish_reason == "cancelled"
    assert second.result.finish_reason == "length"
    batch.close()


def test_a_fault_of_the_loop_ends_its_jobs_and_the_thread_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    batch = threaded()
    with monkeypatch.context() as patch:
        patch.setattr(batch._batch, "prefill", lambda: 1 / 0)
        broken = submit(batch, greedy(1))
        _until(lambda: broken.ended)
    assert "ZeroDivisionError" in str(broken.updates[-1].error)
    after = submit(batch, greedy(2))
    assert batch.drain(60) and after.result.finish_reason == "length"
    assert batch._engine.runtime.rows == ()
    batch.close()


def test_after_300_jobs_with_cancels_nothing_is_left() -> None:
    random.seed(0)
    batch = threaded(max_queue=12, cache_bytes=20_000)
    heard: list[Listening] = []
    while len(heard) < 300:
        ids = tuple(random.choices(range(1, VOCAB), k=random.randint(1, 10)))
        params = SamplingParams(max_tokens=random.randint(1, 6), temperature=random.choice([0.0, 1.0]), seed=1)
        try:
            one = submit(batch, Job(ids, params, key=random.choice("AB")))
        except QueueFullError:
            time.sleep(0.001)
            continue
        heard.append(one)
        if random.random() < 0.3:
            victim = random.choice(heard[-8:])
            assert victim.ticket is not None
            victim.ticket.cancel()
    assert batch.drain(120)
    state = batch.snapshot()
    assert all(one.ended for one in heard)
    assert sum(state.totals.finished.values()) == 300 and set(state.totals.finished) <= {"length", "cancelled"}
    _until(lambda: batch.snapshot().running == 0)
    state = batch.snapshot()
    assert (state.running, state.waiting, state.kv_positions, state.jobs) == (0, 0, 0, ())
    assert batch._engine.runtime.rows == () and batch._engine.active == ()
    assert state.cache.num_bytes == sum(state.cache.bytes_by_key.values()) <= 20_000
    batch.close()
    assert batch.snapshot().cache.num_entries == 0


def _until(done: Callable[[], bool], limit_s: float = 60) -> None:
    end = time.monotonic() + limit_s
    while not done():
        assert time.monotonic() < end
        time.sleep(0.002)
