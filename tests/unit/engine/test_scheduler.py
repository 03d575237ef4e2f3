"""The scheduler's loop, turned by hand: who joins, who is told what, who leaves, what is refused."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from engine_fakes import VOCAB, Prophet
from medusakit.drafters.base import DraftState
from medusakit.engine.controller import FixedController, GuardedController
from medusakit.engine.guard import Guard
from medusakit.engine.jobs import Job, SchedulerSettings, Update
from medusakit.engine.plan import make_plan
from medusakit.engine.scheduler import Scheduler
from medusakit.engine.speculation import Speculation
from medusakit.errors import (
    ContextLengthError,
    DeadlineError,
    DrainingError,
    MedusaError,
    QueueFullError,
    RuntimeFailure,
    UsageError,
)
from medusakit.settings import SamplingParams
from medusakit.tree.cost import StepCost
from medusakit.tree.policy import DynamicPolicy, StaticPolicy
from medusakit.tree.topology import Beam, Draft, Shape
from scheduler_fakes import CHAIN, Clock, FakeLLM, Knowing, Listening, alone, greedy, run, scheduler, submit


def knowing(*jobs: Job, right: float = 1.0) -> Knowing:
    return Knowing(right, known=[[*job.ids, *alone(job).token_ids] for job in jobs])


def rows(scheduler: Scheduler) -> int:
    return len(scheduler._engine.runtime.rows)


def test_a_job_runs_to_its_end_and_its_updates_join_to_the_library_s_answer() -> None:
    job = greedy(3, 1, 4, 1, 5, max_tokens=11)
    batch = scheduler(knowing(job))
    listening = submit(batch, job)
    run(batch)
    expected = alone(job)
    assert listening.tokens == list(expected.token_ids) == list(listening.result.token_ids)
    assert "".join(e.text for u in listening.updates for e in u.events) == expected.text == listening.result.text
    assert listening.result.finish_reason == "length" and listening.result.stats.tau > 2
    assert [len(update.events) for update in listening.updates] == [1, 5, 5]
    assert rows(batch) == 0 and batch.tick() is False


def test_a_long_prompt_comes_in_chunks_between_the_others_steps() -> None:
    batch = scheduler(prefill_chunk=2)
    short = submit(batch, greedy(1, 2, max_tokens=30))
    batch.tick()
    long = submit(batch, greedy(*range(11), max_tokens=3))
    for turn in range(1, 6):
        batch.tick()
        assert len(short.tokens) == 2 + turn and long.tokens == []
        assert [job.state for job in batch.snapshot().jobs] == ["running", "prefill"]
        assert batch.snapshot().jobs[1].num_prefilled == 2 * turn
    batch.tick()
    assert len(short.tokens) == 8 and len(long.tokens) == 2  # the prompt's token, and one of the step after it


def test_a_short_prompt_is_not_held_up_by_a_long_one_and_the_long_one_goes_on() -> None:
    batch = scheduler(prefill_chunk=2)
    submit(batch, greedy(9, max_tokens=60))
    batch.tick()
    long, short = submit(batch, greedy(*range(20))), submit(batch, greedy(5, 6, 7))
    batch.tick(), batch.tick()
    assert short.tokens and not long.tokens
    steady = [submit(batch, greedy(5, 6, 7, 8, 9, max_tokens=1)) for _ in range(40)]
    for _ in range(45):
        batch.tick()
    assert long.tokens and not all(one.ended for one in steady)


def test_one_pass_serves_all_running_rows() -> None:
    batch = scheduler()
    jobs = [greedy(index, max_tokens=6) for index in range(3)]
    listening = [submit(batch, job) for job in jobs]
    for _ in range(3):
        batch.tick()
    before = batch.snapshot().totals
    batch.tick()
    after = batch.snapshot().totals
    assert after.steps["plain"] - before.steps["plain"] == 1 and after.row_steps - before.row_steps == 3
    run(batch)
    assert [one.tokens for one in listening] == [list(alone(job).token_ids) for job in jobs]


def test_waiting_keys_take_turns() -> None:
    batch = scheduler(max_rows=1)
    order: list[str] = []
    for name in ("a1", "a2", "a3", "b1"):
        submit(batch, greedy(1, max_tokens=1, key=name[0]), lambda _, name=name: order.append(name))
    run(batch)
    assert order == ["a1", "b1", "a2", "a3"]


def test_a_full_queue_is_refused_with_a_time_that_follows_what_jobs_took() -> None:
    clock = Clock()
    batch = scheduler(max_rows=1, max_queue=1, clock=clock)
    first = submit(batch, greedy(1, max_tokens=3))
    submit(batch, greedy(2, max_tokens=3))
    with pytest.raises(QueueFullError, match="2 requests are open") as early:
        submit(batch, greedy(3))
    while not first.ended:
        clock.now += 100
        batch.tick()
    submit(batch, greedy(3))
    with pytest.raises(QueueFullError) as later:
        submit(batch, greedy(4))
    assert later.value.retry_after_s > early.value.retry_after_s >= 1
    run(batch)
    assert rows(batch) == 0


@pytest.mark.parametrize(
    ("job", "error"),
    [
        (greedy(), UsageError),
        (greedy(1, VOCAB), UsageError),
        (greedy(*[0] * 64), ContextLengthError),
        (greedy(1, max_tokens=0), UsageError),
        (Job((1,), SamplingParams(logit_bias={VOCAB: 1.0})), UsageError),
    ],
)
def test_what_can_never_run_is_refused_at_once(job: Job, error: type[MedusaError]) -> None:
    batch = scheduler()
    with pytest.raises(error):
        submit(batch, job)
    assert batch.snapshot().waiting == 0 and batch.tick() is False


def test_more_rows_than_the_model_has_are_refused() -> None:
    with pytest.raises(UsageError, match="1 to 4"):
        scheduler(max_rows=5)


@pytest.mark.parametrize("turns", [0, 1, 3, 5])
def test_a_cancelled_job_is_told_no_further_token_and_its_row_comes_back_within_one_step(turns: int) -> None:
    batch = scheduler(prefill_chunk=1)
    other, job = submit(batch, greedy(7, max_tokens=20)), submit(batch, greedy(1, 2, 3, max_tokens=20))
    for _ in range(turns):
        batch.tick()
    seen = job.tokens
    assert job.ticket is not None
    job.ticket.cancel()
    batch.tick()
    assert job.ended and job.tokens == seen and job.result.finish_reason == "cancelled"
    assert list(job.result.token_ids) == seen and rows(batch) == 1
    job.ticket.cancel()  # a second time does nothing
    run(batch)
    assert other.tokens == list(alone(greedy(7, max_tokens=20)).token_ids)


@pytest.mark.parametrize(
    "params", [{}, {"temperature": 0.8}, {"acceptance": "typical"}, {"temperature": 0.8, "acceptance": "typical"}]
)
def test_a_job_that_never_began_is_named_like_its_answer(params: dict[str, Any]) -> None:
    """Typical acceptance at temperature 0 is greedy, and exact."""
    batch, job = scheduler(), Job((1, 2), SamplingParams(max_tokens=2, seed=1, **params))
    cancelled = submit(batch, job)
    assert cancelled.ticket is not None
    cancelled.ticket.cancel()
    run(batch)
    wanted = alone(job)
    assert (cancelled.result.acceptance, cancelled.result.lossless) == (wanted.acceptance, wanted.lossless)
    assert cancelled.tokens == []


def test_a_cancel_during_a_step_hides_what_that_step_brought() -> None:
    batch = scheduler(knowing())
    victim = Listening()

    def cancel(update: Update) -> None:
        if len(watcher.updates) == 5 and victim.ticket is not None:
            victim.ticket.cancel()

    watcher = submit(batch, greedy(1, max_tokens=9), cancel)
    victim.ticket = batch.submit(greedy(2, max_tokens=9), victim)
    batch.tick()
    while not victim.ended:
        told = len(victim.tokens)
        batch.tick()
    assert victim.updates[-1].events == () and len(victim.tokens) == told
    run(batch)
    assert watcher.result.finish_reason == "length"


@pytest.mark.parametrize("turns", [0, 1, 4])
def test_a_deadline_ends_a_job_wherever_it_is(turns: int) -> None:
    clock = Clock()
    batch = scheduler(clock=clock, max_rows=1 if not turns else 3, prefill_chunk=1)
    other = submit(batch, greedy(7, max_tokens=12))
    batch.tick()
    late = submit(batch, greedy(1, 2, 3, max_tokens=12, deadline_s=5.0))
    for _ in range(turns):
        batch.tick()
    clock.now = 5.1
    batch.tick()
    assert isinstance(late.updates[-1].error, DeadlineError)
    assert late.updates[-1].error.code == "deadline_exceeded"
    assert (late.updates[-1].result is not None) == bool(late.tokens) == (turns == 4)
    run(batch)
    assert other.result.finish_reason == "length" and rows(batch) == 0


def test_a_listener_that_raises_ends_its_own_job() -> None:
    def burst(update: Update) -> None:
        raise ValueError("burst")

    batch = scheduler()
    bad, good = submit(batch, greedy(1), burst), submit(batch, greedy(2))
    run(batch)
    assert len(bad.updates) == 1 and good.tokens == list(alone(greedy(2)).token_ids) and rows(batch) == 0


def test_a_job_whose_prompt_fails_ends_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    batch = scheduler()
    runtime = batch._engine.runtime
    prefill = runtime.prefill

    def failing(row: int, ids: Sequence[int]) -> object:
        if 13 in ids:
            raise RuntimeFailure("no memory")
        return prefill(row, ids)

    monkeypatch.setattr(runtime, "prefill", failing)
    good, bad = submit(batch, greedy(1, 2)), submit(batch, greedy(1, 2, 13))
    run(batch)
    assert bad.updates == [Update((), None, bad.updates[0].error, 0)]
    assert isinstance(bad.updates[0].error, RuntimeFailure) and "no memory" in str(bad.updates[0].error)
    assert good.result.finish_reason == "length" and rows(batch) == 0


def test_a_job_whose_rule_fails_ends_alone() -> None:
    batch = scheduler(knowing())
    bad, good = submit(batch, greedy(1, max_tokens=20)), submit(batch, greedy(2, max_tokens=20))
    while len(bad.tokens) < 3:
        batch.tick()
    session = batch._batch.jobs[0].session
    assert session is not None
    session.text = None  # type: ignore[assignment]
    run(batch)
    error = bad.updates[-1].error
    assert isinstance(error, RuntimeFailure) and "AttributeError" in str(error)
    assert list(bad.result.token_ids[:3]) == bad.tokens[:3]
    assert good.tokens == list(alone(greedy(2, max_tokens=20)).token_ids) and rows(batch) == 0
    assert batch.snapshot().cache.num_entries == 1  # what the failed row holds is not kept


def test_a_step_that_fails_ends_its_jobs_and_the_next_ones_run(monkeypatch: pytest.MonkeyPatch) -> None:
    batch = scheduler()
    jobs = [submit(batch, greedy(index, max_tokens=20)) for index in range(2)]
    batch.tick(), batch.tick()
    with monkeypatch.context() as patch:
        patch.setattr(batch._engine.runtime, "forward", lambda trees: 1 / 0)
        batch.tick()
    for one in jobs:
        assert "ZeroDivisionError" in str(one.updates[-1].error) and one.result.finish_reason == "cancelled"
    assert rows(batch) == 0 and batch.snapshot().cache.num_entries == 0
    after = submit(batch, greedy(5))
    run(batch)
    assert after.tokens == list(alone(greedy(5)).token_ids)
    assert batch.snapshot().totals.finished == {"runtime": 2, "length": 1}


def test_the_second_turn_of_a_chat_reuses_the_first() -> None:
    batch = scheduler()
    first = submit(batch, greedy(3, 1, 4, max_tokens=6))
    run(batch)
    answer = first.result.token_ids
    job = greedy(3, 1, 4, *answer, 7, 7, max_tokens=6)
    second = submit(batch, job)
    run(batch)
    assert first.updates[-1].cached_tokens == 0
    assert second.updates[0].cached_tokens == second.updates[-1].cached_tokens == 3 + len(answer) - 1
    assert second.tokens == list(alone(job).token_ids)
    assert second.result.stats.num_prompt_tokens == len(job.ids)
    assert batch.snapshot().totals.cached_tokens == 8 and batch.snapshot().cache.hits == 1


def test_a_prefix_never_crosses_keys() -> None:
    batch = scheduler()
    ids = (3, 1, 4, 1, 5)
    submit(batch, greedy(*ids, key="A"))
    run(batch)
    other, same = submit(batch, greedy(*ids, key="B")), submit(batch, greedy(*ids, key="A"))
    run(batch)
    assert other.updates[-1].cached_tokens == 0 and same.updates[-1].cached_tokens == 4
    assert set(batch.snapshot().cache.bytes_by_key) == {"A", "B"}


def test_cached_bytes_of_a_key_stay_in_its_limit() -> None:
    batch = scheduler(cache_bytes_per_key=7_000)
    for index in range(6):
        submit(batch, greedy(index, *range(12), key="A"))
        run(batch)
    state = batch.snapshot().cache
    assert 0 < state.bytes_by_key["A"] <= 7_000 and state.evictions > 0


def test_evicted_memory_filled_with_nan_changes_nothing() -> None:
    batch = scheduler(cache_bytes=4_000)  # 256 bytes a position
    ids = (3, 1, 4, 1, 5)
    submit(batch, greedy(*ids))
    run(batch)
    evicted = [array for entry in batch._batch.cache._entries for array in entry.memory.arrays]
    running = submit(batch, greedy(*ids, max_tokens=20))
    batch.tick()
    assert batch.snapshot().jobs[0].num_cached_tokens == 4
    submit(batch, greedy(*reversed(range(12)), max_tokens=1))
    for _ in range(12):
        batch.tick()
    assert evicted and batch.snapshot().cache.evictions == 1 and batch.snapshot().jobs
    for array in evicted:
        array[:] = float("nan")
    after = submit(batch, greedy(*ids))
    run(batch)
    assert running.tokens == list(alone(greedy(*ids, max_tokens=20)).token_ids)
    assert after.tokens == list(alone(greedy(*ids)).token_ids)


def test_a_cache_of_no_bytes_keeps_nothing() -> None:
    batch = scheduler(cache_bytes=0)
    for _ in range(2):
        again = submit(batch, greedy(3, 1, 4))
        run(batch)
    assert again.updates[-1].cached_tokens == 0 and batch.snapshot().cache.num_entries == 0


def test_memory_that_cannot_be_kept_ends_no_job(monkeypatch: pytest.MonkeyPatch) -> None:
    batch = scheduler()
    monkeypatch.setattr(batch._engine.runtime, "save", lambda row: _no_memory())
    listening = submit(batch, greedy(3, 1, 4))
    run(batch)
    assert listening.result.finish_reason == "length" and rows(batch) == 0


def _no_memory() -> None:
    raise MemoryError


def test_a_job_may_decode_plainly_or_with_few_nodes_beside_the_others() -> None:
    jobs = [greedy(3, 1, max_tokens=12), greedy(3, 1, max_tokens=12, speculation=False)]
    jobs.append(greedy(3, 1, max_tokens=12, budget=3))
    batch = scheduler(knowing(jobs[0]))
    free, plain, few = (submit(batch, job) for job in jobs)
    run(batch)
    assert free.tokens == plain.tokens == few.tokens == list(alone(jobs[0]).token_ids)
    assert plain.result.stats.tau == 1 and plain.result.stats.nodes_per_step == 1
    assert few.result.stats.nodes_per_step <= 3 < free.result.stats.nodes_per_step


def test_speculation_is_switched_while_jobs_run() -> None:
    job = greedy(3, 1, 4, max_tokens=40)
    batch = scheduler(knowing(job))
    listening = submit(batch, job)
    batch.tick()
    batch.set_speculation(False)
    batch.tick()
    assert not batch.snapshot().speculation
    before = batch.snapshot().totals
    for _ in range(5):
        batch.tick()
    after = batch.snapshot().totals
    assert after.steps == {"tree": before.steps["tree"], "plain": 6} and after.row_tokens - before.row_tokens == 5
    batch.set_speculation(True)
    run(batch)
    assert batch.snapshot().totals.steps["tree"] > before.steps["tree"]
    assert listening.tokens == list(alone(job).token_ids)


def test_drafting_is_replaced_while_jobs_run() -> None:
    job = greedy(3, 1, 4, max_tokens=30)
    useless, useful = Prophet(0.0), knowing(job)
    batch = scheduler(useless)
    listening = submit(batch, job)
    for _ in range(4):
        batch.tick()
    assert batch.snapshot().totals.tau < 2
    controller = FixedController(make_plan(useful, StaticPolicy(CHAIN), 5))
    batch.replace_drafting(Speculation(useful, CHAIN, controller))
    batch.tick()
    assert len(listening.updates[-1].events) == 5
    run(batch)
    assert listening.tokens == list(alone(job).token_ids)


class SureDrafter(Knowing):
    """Draws its chain as a beam would, and is sure of every node."""

    def propose(self, states: Sequence[DraftState], shape: Shape) -> list[Draft]:
        assert isinstance(shape, Beam)
        return [self._draft(state, CHAIN) for state in states]


def test_many_rows_fall_to_plain_by_cost() -> None:
    """T(n) is flat up to 6 nodes and steep after: one row has room for a tree, four rows have none."""
    cost = StepCost.single({1: 1.0, 6: 1.0, 7: 8.0, 30: 40.0})
    jobs = [greedy(index, max_tokens=30) for index in range(4)]
    drafter = SureDrafter(1.0, known=knowing(*jobs).known)
    policy = DynamicPolicy(Beam((1, 1, 1, 1)), cost=cost)
    controller = GuardedController(make_plan(drafter, policy, 8), Guard(cost))
    engine = scheduler(max_rows=4)._engine
    engine.controller = controller
    batch = Scheduler(FakeLLM(engine), SchedulerSettings(max_rows=4), clock=Clock())
    crowd = [submit(batch, job) for job in jobs]
    for _ in range(20):
        batch.tick()
        if len([job for job in batch.snapshot().jobs if job.state == "running"]) < 4:
            continue
        plain = batch.snapshot().totals
        batch.tick()
        assert batch.snapshot().totals.draft_tokens == plain.draft_tokens
    run(batch)
    before = batch.snapshot().totals
    submit(batch, jobs[0])
    run(batch)
    after = batch.snapshot().totals
    assert (after.row_tokens - before.row_tokens) / (after.row_steps - before.row_steps) > 2
    assert [one.tokens for one in crowd] == [list(alone(job).token_ids) for job in jobs]


def test_draining_takes_no_new_jobs_and_says_whether_all_ended() -> None:
    batch = scheduler()
    listening = submit(batch, greedy(1))
    assert batch.drain(0.0) is False and batch.snapshot().draining
    with pytest.raises(DrainingError):
        submit(batch, greedy(2))
    run(batch)
    assert batch.drain(0.0) is True and listening.result.finish_reason == "length"


def test_close_cancels_all_and_tells_them() -> None:
    batch = scheduler(max_rows=1)
    running, waiting = submit(batch, greedy(1, max_tokens=30)), submit(batch, greedy(2))
    batch.tick()
    batch.close()
    assert running.result.finish_reason == waiting.result.finish_reason == "cancelled"
    assert rows(batch) == 0 and batch.snapshot().cache.num_entries == 0 and batch.snapshot().waiting == 0
    with pytest.raises(DrainingError):
        submit(batch, greedy(2))


def test_the_snapshot_counts() -> None:
    clock = Clock()
    job = greedy(3, 1, 4, max_tokens=11)
    batch = scheduler(knowing(job), max_rows=1, clock=clock)
    submit(batch, job)
    submit(batch, greedy(5, key="B"))
    batch.tick()
    clock.now = 2.0
    state = batch.snapshot()
    assert (state.running, state.waiting, state.max_rows) == (1, 1, 1)
    assert state.jobs[-1].state == "waiting" and state.jobs[-1].age_s == 2.0
    assert state.kv_capacity == 64 and state.kv_positions <= 64
    run(batch)
    totals = batch.snapshot().totals
    assert totals.generated_tokens == 11 + 8 and totals.prompt_tokens == 4
    assert totals.row_tokens == 10 + 7
    assert totals.accepted_by_depth[0] >= 2 and len(totals.accepted_by_depth) == len(totals.offered_by_depth) == 4
    assert totals.finished == {"length": 2} and totals.draft_tokens == 4 * totals.drafts
