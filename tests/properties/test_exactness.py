"""Exactness is the product: through any tree, drafter, rule and batch the output equals plain decoding."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from engine_fakes import VOCAB, Prophet, answer, plain_engine, tree_engine
from medusakit.settings import SamplingParams
from medusakit.tree.topology import Topology


@st.composite
def topologies(draw: st.DrawFn, max_nodes: int = 10) -> Topology:
    size = draw(st.integers(2, max_nodes))
    return Topology.from_parents([-1, *(draw(st.integers(0, node - 1)) for node in range(1, size))])


prompts = st.lists(st.integers(0, VOCAB - 1), min_size=1, max_size=8)
requests = st.builds(
    SamplingParams,
    max_tokens=st.integers(1, 24),
    temperature=st.sampled_from([0.0, 0.0, 0.7, 1.3]),
    top_k=st.sampled_from([0, 1, 5, 100]),
    top_p=st.sampled_from([1.0, 0.8]),
    min_p=st.sampled_from([0.0, 0.05]),
    repetition_penalty=st.sampled_from([1.0, 1.3]),
    presence_penalty=st.sampled_from([0.0, 0.5]),
    frequency_penalty=st.sampled_from([0.0, 0.4]),
    logit_bias=st.sampled_from([{}, {3: 2.0, 4: -100.0}]),
    seed=st.integers(0, 2**32),
    stop=st.sampled_from([(), ("a",), ("bc", "d"), ("efg",)]),
)


@settings(max_examples=60, deadline=None)
@given(
    prompt=prompts,
    params=requests,
    topology=topologies(),
    right=st.sampled_from([0.0, 0.5, 1.0]),
    model=st.integers(0, 5),
    eos=st.sets(st.integers(0, VOCAB - 1), max_size=2),
)
def test_any_tree_gives_what_plain_decoding_gives(
    prompt: list[int], params: SamplingParams, topology: Topology, right: float, model: int, eos: set[int]
) -> None:
    plain = answer(plain_engine(model, eos=sorted(eos)), prompt, params)
    drafter = Prophet(right, truths={0: prompt + list(plain.token_ids)})
    medusa = answer(tree_engine(topology, drafter, model, eos=sorted(eos)), prompt, params)
    assert medusa.token_ids == plain.token_ids
    assert (medusa.text, medusa.finish_reason) == (plain.text, plain.finish_reason)
    assert plain.stats.tau == 1.0 and medusa.stats.num_steps <= plain.stats.num_steps


@settings(max_examples=25, deadline=None)
@given(
    jobs=st.lists(st.tuples(prompts, requests, st.integers(0, 6)), min_size=2, max_size=6),
    topology=topologies(6),
    right=st.sampled_from([0.3, 0.9]),
)
def test_rows_that_join_and_leave_do_not_change_each_other(
    jobs: list[tuple[list[int], SamplingParams, int]], topology: Topology, right: float
) -> None:
    alone = [answer(plain_engine(1, eos=[0]), prompt, params) for prompt, params, _ in jobs]
    drafter = Prophet(right)
    engine = tree_engine(topology, drafter, 1, eos=[0], max_rows=3)
    waiting = [(at, index) for index, (_, _, at) in enumerate(jobs)]
    open_sessions, results, now = {}, {}, 0
    while waiting or open_sessions:
        for item in [item for item in waiting if item[0] <= now]:
            if len(engine.runtime.rows) == engine.runtime.capabilities.max_rows:
                break
            waiting.remove(item)
            prompt, params, _ = jobs[item[1]]
            session = engine.start(prompt, params)
            drafter.truths[session.row] = prompt + list(alone[item[1]].token_ids)
            open_sessions[item[1]] = session
        engine.step()
        for index, session in list(open_sessions.items()):
            if not session.running:
                results[index] = session.result()
                engine.finish(session)
                del open_sessions[index]
        now += 1
    assert [results[index].token_ids for index in range(len(jobs))] == [result.token_ids for result in alone]
    assert engine.runtime.rows == ()
