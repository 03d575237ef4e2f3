"""A drafter that raises or proposes nonsense ends nobody's answer, and drafts no more until it is let."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pytest

from engine_fakes import VOCAB, Prophet, answer, tree_engine
from medusakit.drafters.base import DraftState
from medusakit.engine.controller import FixedController
from medusakit.engine.jobs import Job
from medusakit.engine.plan import make_plan
from medusakit.engine.speculation import Speculation
from medusakit.errors import RuntimeFailure
from medusakit.settings import SamplingParams
from medusakit.tree.policy import DynamicPolicy, StaticPolicy
from medusakit.tree.topology import Beam, Draft, FloatArray, Shape, Topology
from scheduler_fakes import CHAIN, Knowing, alone, run, scheduler, submit

JOBS = [
    Job((3, 1, 4), SamplingParams(max_tokens=15), request="req-a"),
    Job((1, 5), SamplingParams(max_tokens=12, temperature=0.9, seed=4), request="req-b"),
    Job((9, 2, 6, 5), SamplingParams(max_tokens=9, repetition_penalty=1.3), request="req-c"),
]


def out_of_range(draft: Draft, token: int) -> Draft:
    tokens = draft.tokens.copy()
    tokens[-1] = token
    return Draft(draft.topology, tokens, draft.logprobs)


def of_another_shape(draft: Draft) -> Draft:
    parents, depths = draft.topology.parents.copy(), draft.topology.depths.copy()
    parents[1] = 3
    return Draft(Topology(parents, depths, draft.topology.ranks), draft.tokens, draft.logprobs)


NONSENSE = {
    "negative": lambda drafts: [out_of_range(one, -1) for one in drafts],
    "too large": lambda drafts: [out_of_range(one, VOCAB) for one in drafts],
    "another root": lambda drafts: [Draft(d.topology, (d.tokens + 1) % VOCAB, d.logprobs) for d in drafts],
    "short": lambda drafts: [Draft(d.topology, d.tokens[:2], d.logprobs) for d in drafts],
    "no integers": lambda drafts: [Draft(d.topology, d.tokens + 0.5, d.logprobs) for d in drafts],
    "too few": lambda drafts: drafts[:-1],
    "too many": lambda drafts: [*drafts, *drafts],
    "none": lambda drafts: None,
}


@dataclass
class Faulty(Knowing):
    """Works until its `after`th call of what it fails at."""

    fault: str = "draft"
    after: int = 1
    calls: int = 0
    resets: int = 0
    healed: bool = field(default=False)

    def propose(self, states: Sequence[DraftState], shape: Shape) -> list[Draft]:
        drafts = super().propose(states, shape)
        if self._due("draft"):
            raise ValueError("cannot draft")
        return NONSENSE[self.fault](drafts) if self.fault in NONSENSE and self._due(self.fault) else drafts

    def observe(self, row: int, kept_ids: Sequence[int], hidden: FloatArray) -> None:
        super().observe(row, kept_ids, hidden)
        if self._due("observe"):
            raise ValueError("cannot observe")

    def forget(self, row: int) -> None:
        super().forget(row)
        if self._due("forget"):
            raise ValueError("cannot forget")

    def reset(self) -> None:
        self.resets += 1

    def _due(self, at: str) -> bool:
        self.calls += self.fault == at
        return self.fault == at and not self.healed and self.calls > self.after


def faulty(fault: str, after: int = 1) -> Faulty:
    return Faulty(0.7, known=[[*job.ids, *alone(job).token_ids] for job in JOBS], fault=fault, after=after)


@pytest.mark.parametrize("fault", ["draft", "observe", "forget", *NONSENSE])
@pytest.mark.parametrize("after", [0, 1])
def test_every_job_ends_well_and_as_plain(fault: str, after: int, caplog: pytest.LogCaptureFixture) -> None:
    drafter = faulty(fault, after)
    batch = scheduler(drafter)
    found = [submit(batch, job) for job in JOBS]
    with caplog.at_level(logging.ERROR):
        run(batch)
    for job, one in zip(JOBS, found, strict=True):
        assert (one.result.token_ids, one.updates[-1].error) == (alone(job).token_ids, None)
    state = batch.snapshot()
    assert (state.broken, state.drafting, state.speculation) == (("prophet",), False, True)
    assert state.totals.drafter_failures == {"prophet": 1}
    assert batch._engine.runtime.rows == ()
    (record,) = [one for one in caplog.records if "failed" in one.getMessage()]
    assert set(record.fields["request_ids"]) <= {"req-a", "req-b", "req-c"}  # type: ignore[attr-defined]
    if fault != "forget":
        assert record.fields["request_ids"]  # type: ignore[attr-defined]
    assert drafter.resets == 1


def test_it_drafts_again_once_speculation_is_switched_on() -> None:
    drafter = faulty("draft", 0)
    batch = scheduler(drafter)
    submit(batch, JOBS[0])
    run(batch)
    asked, drafter.healed = drafter.calls, True
    submit(batch, JOBS[0])
    run(batch)
    assert drafter.calls == asked
    batch.set_speculation(True)
    again = submit(batch, JOBS[0])
    run(batch)
    assert batch.snapshot().broken == () and batch.snapshot().drafting
    assert drafter.calls > asked and again.result.stats.tau > 1
    assert again.result.token_ids == alone(JOBS[0]).token_ids


def test_other_heads_draft_at_once() -> None:
    batch = scheduler(faulty("draft", 0))
    submit(batch, JOBS[0])
    run(batch)
    good = Knowing(1.0, known=[[*JOBS[0].ids, *alone(JOBS[0]).token_ids]])
    plan = make_plan(good, StaticPolicy(CHAIN), 5)
    batch.replace_drafting(Speculation(good, CHAIN, FixedController(plan)))
    again = submit(batch, JOBS[0])
    run(batch)
    assert batch.snapshot().broken == () and again.result.stats.tau > 2


def test_jobs_with_other_drafters_go_on_drafting() -> None:
    good = Knowing(1.0, known=[[*JOBS[1].ids, *alone(JOBS[1]).token_ids]])
    plan = make_plan(good, StaticPolicy(Topology.dense([2, 1])), 5)
    batch = scheduler(faulty("draft", 0))
    bad = submit(batch, JOBS[0])
    own = submit(batch, Job(JOBS[1].ids, JOBS[1].params, plan=plan))
    run(batch)
    assert (bad.result.stats.tau, bad.result.token_ids) == (1.0, alone(JOBS[0]).token_ids)
    assert own.result.stats.tau > 1.5 and own.result.token_ids == alone(JOBS[1]).token_ids


class Malformed(Prophet):
    """Beams whose nodes are no tree."""

    def propose(self, states: Sequence[DraftState], shape: Shape) -> list[Draft]:
        return [of_another_shape(one) for one in super().propose(states, Topology.chain(4))]


def test_a_malformed_tree_grown_by_a_beam() -> None:
    batch = scheduler(Prophet(0.0))
    drafter = Malformed(0.0)
    plan = make_plan(drafter, DynamicPolicy(Beam((2, 2, 2, 2))), 5)
    found = submit(batch, Job(JOBS[0].ids, JOBS[0].params, plan=plan))
    run(batch)
    assert found.result.token_ids == alone(JOBS[0]).token_ids
    assert batch.snapshot().broken == ("prophet",)


@pytest.mark.parametrize(
    ("fault", "error"), [("draft", ValueError), ("observe", ValueError), ("short", RuntimeFailure)]
)
def test_the_library_s_caller_sees_the_error(fault: str, error: type[Exception]) -> None:
    with pytest.raises(error):
        answer(tree_engine(CHAIN, faulty(fault)), JOBS[0].ids, JOBS[0].params)


@pytest.mark.parametrize(
    ("parents", "depths"), [([-1, 2, 0], [0, 1, 1]), ([0, 0], [0, 1]), ([-1, 0], [0, 2]), ([-1, -1], [0, 1]), ([], [])]
)
def test_what_is_no_tree(parents: list[int], depths: list[int]) -> None:
    assert not Topology(np.array(parents, np.int64), np.array(depths, np.int64), np.zeros(len(parents), int)).is_tree
    assert CHAIN.is_tree and Topology.dense([3, 2]).is_tree and Topology.chain(0).is_tree
