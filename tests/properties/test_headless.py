"""Drafters without heads: what they draft is real, and through the engine the output equals plain decoding."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine_fakes import VOCAB, LetterTokenizer, answer, plain_engine
from medusakit.drafters.base import Drafter, DraftState
from medusakit.drafters.hybrid.drafter import HybridDrafter, Source
from medusakit.drafters.registry import HEADLESS, headless_drafter
from medusakit.drafters.suffix.automaton import SuffixAutomaton
from medusakit.drafters.suffix.drafter import Match, SuffixDrafter, continuations
from medusakit.engine.controller import FixedController, GuardedController
from medusakit.engine.engine import Engine
from medusakit.engine.guard import Guard
from medusakit.engine.plan import make_plan
from medusakit.runtimes.reference import random_reference
from medusakit.settings import SamplingParams
from medusakit.tree.cost import StepCost
from medusakit.tree.policy import DynamicPolicy, StaticPolicy, TreePolicy
from medusakit.tree.topology import Beam, Topology

texts = st.integers(1, 6).flatmap(lambda letters: st.lists(st.integers(0, letters), min_size=1, max_size=60))


def occurs(part: Sequence[int], text: Sequence[int]) -> bool:
    return any(list(text[at : at + len(part)]) == list(part) for at in range(len(text) - len(part) + 1))


@given(text=texts)
def test_the_match_is_the_longest_suffix_that_occurs_earlier(text: list[int]) -> None:
    automaton = SuffixAutomaton()
    for token in text:
        automaton.extend(token)
    length = automaton.length(automaton.match)
    assert occurs(text[len(text) - length :], text[:-1])
    assert length == len(text) - 1 or not occurs(text[len(text) - length - 1 :], text[:-1])


@given(text=texts)
def test_guesses_are_real_continuations_with_probabilities(text: list[int]) -> None:
    """Of every guess, three deep: the tokens that are said to match stand in the text; chances add up to 1 at most."""
    automaton = SuffixAutomaton()
    for token in text:
        automaton.extend(token)
    level = [((), Match(automaton.match, automaton.length(automaton.match)))]
    for _ in range(3):
        grown = []
        for path, match in level:
            guesses = continuations(automaton, match, 64)
            assert sum(guess.probability for guess in guesses) <= 1 + 1e-9
            assert len({guess.token for guess in guesses}) == len(guesses)
            for guess in guesses:
                longer = (*path, guess.token)
                assert 0 < guess.probability < 1
                assert guess.state.length >= 2
                assert occurs([*text, *longer][-guess.state.length :], text)
                grown.append((longer, guess.state))
        level = grown[:20]


@given(text=texts, cuts=st.lists(st.integers(1, 59), max_size=6))
def test_a_draft_depends_on_the_text_alone(text: list[int], cuts: list[int]) -> None:
    """However the text came, in steps of any length, with a bounded memory or not."""
    nothing, beam = np.zeros(1, np.float32), Beam((4, 4, 4))
    steady, fresh = SuffixDrafter(), SuffixDrafter(max_tokens=1000)
    for cut in sorted({min(cut, len(text)) for cut in cuts}):
        steady.propose([DraftState(0, text[cut - 1], nothing, text[:cut])], beam)
    ours, theirs = (one.propose([DraftState(0, text[-1], nothing, text)], beam)[0] for one in (steady, fresh))
    assert ours.tokens.tolist() == theirs.tokens.tolist()
    assert ours.logprobs.tolist() == theirs.logprobs.tolist()


prompts = st.lists(st.integers(0, VOCAB - 1), min_size=1, max_size=8)
requests = st.builds(
    SamplingParams,
    max_tokens=st.integers(1, 32),
    temperature=st.sampled_from([0.0, 0.0, 0.7, 1.3]),
    top_k=st.sampled_from([0, 3]),
    top_p=st.sampled_from([1.0, 0.8]),
    repetition_penalty=st.sampled_from([1.0, 1.3]),
    seed=st.integers(0, 2**32),
    stop=st.sampled_from([(), ("a",), ("bc", "d")]),
)
STAIRS = StepCost.single({1: 1.0, 2: 1.1, 4: 1.2, 8: 1.7, 16: 2.5})


def policy_of(name: str, drafter_beam: Beam) -> TreePolicy:
    if name == "static":
        return StaticPolicy(Topology.from_rank_paths([(0,), (1,), (0, 0), (0, 1), (0, 0, 0), (1, 0)]))
    cost = STAIRS if name == "costed" else None
    return DynamicPolicy(drafter_beam, max_leaves=4, cost=cost)


def headless_engine(name: str, policy: str, seed: int, *, eos: Sequence[int] = (), max_rows: int = 4) -> Engine:
    runtime = random_reference(seed, VOCAB, context_length=64, max_rows=max_rows)
    drafter, beam = drafter_of(name)
    plan = make_plan(drafter, policy_of(policy, beam), 10)
    controller = GuardedController(plan, Guard(STAIRS)) if policy == "costed" else FixedController(plan)
    return Engine(runtime, LetterTokenizer(frozenset(eos)), controller)


def drafter_of(name: str) -> tuple[Drafter, Beam]:
    if name != "hybrid":
        return headless_drafter(name, vocab_size=VOCAB)
    hybrid = HybridDrafter([Source(*headless_drafter(one, vocab_size=VOCAB)) for one in HEADLESS])
    return hybrid, hybrid.beam


@pytest.mark.parametrize("policy", ["static", "dynamic", "costed"])
@pytest.mark.parametrize("name", [*HEADLESS, "hybrid"])
@settings(max_examples=25, deadline=None)
@given(
    prompt=prompts,
    params=requests,
    model=st.integers(0, 5),
    eos=st.sets(st.integers(0, VOCAB - 1), max_size=1),
)
def test_output_is_that_of_plain_decoding(
    name: str, policy: str, prompt: list[int], params: SamplingParams, model: int, eos: set[int]
) -> None:
    plain = answer(plain_engine(model, eos=sorted(eos)), prompt, params)
    engine = headless_engine(name, policy, model, eos=sorted(eos))
    for _ in range(2):  # the second time with what the first one taught
        drafted = answer(engine, prompt, params)
        assert drafted.token_ids == plain.token_ids
        assert (drafted.text, drafted.finish_reason) == (plain.text, plain.finish_reason)
        assert drafted.stats.num_steps <= plain.stats.num_steps


@pytest.mark.parametrize("name", [*HEADLESS, "hybrid"])
def test_drafts_are_accepted(name: str) -> None:
    """Random models soon say what they said before, so there is something to draft from; nothing above would notice
    a drafter that never drafts."""
    params = SamplingParams(max_tokens=40)
    taus = []
    for model in range(6):
        engine = headless_engine(name, "dynamic", model)
        answer(engine, [1, 2, 3], params)
        taus.append(answer(engine, [1, 2, 3], params).stats.tau)
    assert max(taus) > 2 and np.mean(taus) > 1.3


@pytest.mark.parametrize("name", [*HEADLESS, "hybrid"])
@settings(max_examples=15, deadline=None)
@given(jobs=st.lists(st.tuples(prompts, requests, st.integers(0, 6)), min_size=2, max_size=6))
def test_rows_that_join_and_leave_do_not_change_each_other(
    name: str, jobs: list[tuple[list[int], SamplingParams, int]]
) -> None:
    alone = [answer(plain_engine(1, eos=[0]), prompt, params) for prompt, params, _ in jobs]
    engine = headless_engine(name, "dynamic", 1, eos=[0], max_rows=3)
    waiting = sorted((at, index) for index, (_, _, at) in enumerate(jobs))
    running, results, now = {}, {}, 0
    while waiting or running:
        while waiting and waiting[0][0] <= now and len(engine.runtime.rows) < 3:
            _, index = waiting.pop(0)
            running[index] = engine.start(jobs[index][0], jobs[index][1])
        engine.step()
        for index, session in list(running.items()):
            if not session.running:
                results[index] = session.result()
                engine.finish(running.pop(index))
        now += 1
    assert [results[index].token_ids for index in range(len(jobs))] == [result.token_ids for result in alone]
