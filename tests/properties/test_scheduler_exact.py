"""In any company every job gets the library's own output: joins, leaves, cancels, chunks, cached prefixes included."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st

from engine_fakes import VOCAB
from medusakit.engine.jobs import Job
from medusakit.settings import SamplingParams
from scheduler_fakes import Knowing, alone, run, scheduler, submit

EOS = (0,)
BEGINNINGS = ([3, 1, 4, 1, 5, 9, 2, 6], [3, 1, 4, 7, 7])  # so that prompts share prefixes


@dataclass(frozen=True)
class Visit:
    """A job that comes at turn `at`, and is cancelled at turn `leaves` if it is still there then."""

    job: Job
    at: int
    leaves: int | None


params = st.builds(
    SamplingParams,
    max_tokens=st.integers(1, 20),
    temperature=st.sampled_from([0.0, 0.0, 0.9]),
    top_p=st.sampled_from([1.0, 0.8]),
    repetition_penalty=st.sampled_from([1.0, 1.3]),
    seed=st.integers(0, 2**32),
    stop=st.sampled_from([(), ("a",), ("bc", "d")]),
)
prompts = st.builds(
    lambda start, length, rest: tuple([*start[:length], *rest]),
    st.sampled_from(BEGINNINGS),
    st.integers(0, 8),
    st.lists(st.integers(1, VOCAB - 1), min_size=1, max_size=6),
)
jobs = st.builds(
    Job,
    ids=prompts,
    params=params,
    key=st.sampled_from(["A", "B"]),
    speculation=st.booleans(),
    budget=st.sampled_from([None, 2, 3]),
)
visits = st.builds(Visit, jobs, st.integers(0, 12), st.one_of(st.none(), st.none(), st.integers(0, 20)))


@settings(max_examples=40, deadline=None)
@given(
    visits=st.lists(visits, min_size=1, max_size=8),
    chunk=st.integers(1, 5),
    max_rows=st.integers(1, 4),
    cache_bytes=st.sampled_from([0, 6_000, 1_000_000]),
    right=st.sampled_from([0.0, 0.6, 1.0]),
    switches=st.sets(st.integers(0, 20), max_size=2),
)
def test_every_job_gets_what_it_gets_alone(
    visits: list[Visit], chunk: int, max_rows: int, cache_bytes: int, right: float, switches: set[int]
) -> None:
    truths = [alone(visit.job, eos=EOS) for visit in visits]
    drafter = Knowing(right, known=[[*v.job.ids, *t.token_ids] for v, t in zip(visits, truths, strict=True)])
    batch = scheduler(drafter, eos=EOS, max_rows=max_rows, prefill_chunk=chunk, cache_bytes=cache_bytes)
    open_jobs = {}
    for turn in range(21):
        for index, visit in enumerate(visits):
            if visit.at == turn:
                open_jobs[index] = submit(batch, visit.job)
            if visit.leaves == turn and index in open_jobs:
                open_jobs[index].ticket.cancel()
        if turn in switches:
            batch.set_speculation(not batch.snapshot().speculation)
        batch.tick()
        assert len(batch._engine.runtime.rows) == batch.snapshot().running <= max_rows
    run(batch)
    assert batch._engine.runtime.rows == () and batch._engine.active == ()
    for index, (visit, truth) in enumerate(zip(visits, truths, strict=True)):
        result, told = open_jobs[index].result, open_jobs[index].tokens
        assert tuple(told) == truth.token_ids[: len(told)]
        if result.finish_reason == "cancelled":
            assert visit.leaves is not None
        else:
            assert (result.token_ids, result.text, result.finish_reason) == (
                truth.token_ids,
                truth.text,
                truth.finish_reason,
            )
        assert result.stats.num_tokens == len(result.token_ids)


@settings(max_examples=25, deadline=None)
@given(
    turns=st.lists(st.lists(st.integers(1, VOCAB - 1), min_size=1, max_size=4), min_size=2, max_size=4),
    params=params,
    strangers=st.lists(prompts, max_size=3),
)
def test_a_conversation_reuses_all_that_its_rows_held_and_changes_nothing(
    turns: list[list[int]], params: SamplingParams, strangers: list[tuple[int, ...]]
) -> None:
    batch = scheduler(Knowing(0.0), cache_bytes=1_000_000)
    history: list[int] = []
    for turn, question in enumerate(turns):
        history += question
        if len(history) >= 40:
            return
        job = Job(tuple(history), params, key="A")
        listening = submit(batch, job)
        for ids in strangers:
            submit(batch, Job(ids, params, key="B"))
        run(batch)
        result = listening.result
        assert result.token_ids == alone(job).token_ids
        cached = listening.updates[-1].cached_tokens
        assert cached >= len(history) - len(question) - 1 if turn else cached == 0
        history += result.token_ids
