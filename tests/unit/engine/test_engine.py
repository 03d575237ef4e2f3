"""Sessions: where an answer ends, what stays in the KV, what events say, what is refused."""

from __future__ import annotations

import pytest

from engine_fakes import VOCAB, Prophet, answer, plain_engine, tree_engine
from fakes import Script, ScriptedRuntime
from medusakit.engine.controller import PlainController
from medusakit.engine.engine import Engine
from medusakit.errors import ContextLengthError, UsageError
from medusakit.settings import SamplingParams
from medusakit.tree.topology import Topology
from medusakit.verify.dynamic import DynamicRule
from vocabularies import spm_tokenizer

CHAIN = Topology.chain(4)
PROMPT = [3, 1, 4]


def prophet(tokens: tuple[int, ...], right: float = 1.0) -> Prophet:
    return Prophet(right, truths={0: PROMPT + list(tokens)})


def plain(max_tokens: int = 12, **settings: object) -> tuple[int, ...]:
    return answer(plain_engine(), PROMPT, SamplingParams(max_tokens=max_tokens, **settings)).token_ids


def test_a_perfect_drafter_accepts_every_depth() -> None:
    truth = plain(11)
    result = answer(tree_engine(CHAIN, prophet(truth)), PROMPT, SamplingParams(max_tokens=11))
    assert result.token_ids == truth
    assert result.stats.num_steps == 2
    assert result.stats.tau == 5.0
    assert result.stats.accepted_by_depth == [2, 2, 2, 2]
    assert result.stats.nodes_per_step == 5.0


def test_events_carry_provenance() -> None:
    truth = plain(6)
    result = answer(tree_engine(CHAIN, prophet(truth)), PROMPT, SamplingParams(max_tokens=6))
    assert [(e.from_draft, e.depth, e.node, e.step) for e in result.events] == [
        (False, 0, -1, 0),
        (True, 1, 1, 1),
        (True, 2, 2, 1),
        (True, 3, 3, 1),
        (True, 4, 4, 1),
        (False, 0, -1, 1),
    ]
    assert "".join(e.text for e in result.events) == result.text == "".join(chr(97 + t) for t in truth)


@pytest.mark.parametrize("cut", [1, 2, 3, 4, 5, 6, 7])
def test_the_limit_cuts_inside_a_path_and_nothing_past_it_is_kept(cut: int) -> None:
    truth = plain(12)
    engine = tree_engine(CHAIN, prophet(truth))
    session = engine.start(PROMPT, SamplingParams(max_tokens=cut))
    list(engine.run(session))
    assert session.result().token_ids == truth[:cut]
    assert session.result().finish_reason == "length"
    kept = engine.keep(session)
    assert kept.ids == tuple(PROMPT + list(truth))[: len(kept.ids)]
    assert len(kept.ids) <= len(PROMPT) + cut


def test_end_of_sequence_in_mid_path() -> None:
    truth = plain(12)
    end = truth[3]
    engine = tree_engine(CHAIN, prophet(truth), eos=[end])
    session = engine.start(PROMPT, SamplingParams(max_tokens=12))
    events = list(engine.run(session))
    first = truth.index(end)
    assert session.result().token_ids == truth[: first + 1]
    assert session.result().finish_reason == "stop"
    assert events[-1].text == ""
    assert len(engine.keep(session).ids) <= len(PROMPT) + first + 1


def test_ignore_eos_goes_on() -> None:
    truth = plain(12)
    params = SamplingParams(max_tokens=12, ignore_eos=True)
    assert answer(plain_engine(eos=[truth[2]]), PROMPT, params).token_ids == truth


def test_a_stop_string_that_begins_in_one_step_and_ends_in_the_next() -> None:
    truth = plain(12)
    text = "".join(chr(97 + token) for token in truth)
    stop = text[4:7]  # tokens 1..4 are the first step's draft and 5 its bonus; 6 comes with the second step
    result = answer(tree_engine(CHAIN, prophet(truth)), PROMPT, SamplingParams(max_tokens=12, stop=(stop,)))
    assert result.text == text[: text.index(stop)]
    assert result.finish_reason == "stop"


def test_one_token_prompt() -> None:
    params = SamplingParams(max_tokens=9)
    truth = answer(plain_engine(), [5], params).token_ids
    drafter = Prophet(1.0, truths={0: [5, *truth]})
    assert answer(tree_engine(Topology.dense([2, 3]), drafter), [5], params).token_ids == truth


@pytest.mark.parametrize("left", [1, 2, 3, 5])
def test_prompt_that_nearly_fills_the_context(left: int) -> None:
    prompt = [index % VOCAB for index in range(64 - left)]
    params = SamplingParams(max_tokens=50)
    truth = answer(plain_engine(), prompt, params)
    assert len(truth.token_ids) == left and truth.finish_reason == "length"
    drafter = Prophet(1.0, truths={0: prompt + list(truth.token_ids) + [1, 2, 3, 4, 5]})
    assert answer(tree_engine(CHAIN, drafter), prompt, params).token_ids == truth.token_ids


def test_bad_prompts_are_refused_and_leave_no_row() -> None:
    engine = plain_engine()
    with pytest.raises(UsageError, match="empty"):
        engine.start([], SamplingParams())
    with pytest.raises(ContextLengthError, match="64 tokens; the context holds 64"):
        engine.start([0] * 64, SamplingParams())
    with pytest.raises(UsageError, match=f"token id {VOCAB}"):
        engine.start([1, VOCAB], SamplingParams())
    assert engine.runtime.rows == ()


def test_a_kept_row_is_extended_by_what_is_new() -> None:
    engine = plain_engine()
    first = engine.start(PROMPT, SamplingParams(max_tokens=5))
    list(engine.run(first))
    kept = engine.keep(first)
    longer = [*PROMPT, *first.output_ids, 7, 8]
    second = engine.start(longer, SamplingParams(max_tokens=6), kept)
    list(engine.run(second))
    assert second.stats.num_reused_tokens == len(kept.ids)
    assert second.result().token_ids == answer(plain_engine(), longer, SamplingParams(max_tokens=6)).token_ids
    other = engine.start([9, 9], SamplingParams(max_tokens=4), engine.keep(second))
    list(engine.run(other))
    assert other.stats.num_reused_tokens == 0
    assert other.result().token_ids == answer(plain_engine(), [9, 9], SamplingParams(max_tokens=4)).token_ids


def test_the_drafter_observes_what_enters_the_kv_and_forgets_the_row() -> None:
    truth = plain(8)
    drafter = prophet(truth, right=0.6)
    engine = tree_engine(CHAIN, drafter)
    session = engine.start(PROMPT, SamplingParams(max_tokens=8))
    list(engine.run(session))
    kept = engine.runtime.length(session.row)
    assert (PROMPT + drafter.observed[session.row])[:kept] == session.ids[:kept]
    engine.finish(session)
    assert drafter.forgotten == [session.row]


def test_cancel_ends_within_one_step_and_returns_the_text_so_far() -> None:
    engine = plain_engine()
    session = engine.start(PROMPT, SamplingParams(max_tokens=12))
    events = engine.run(session)
    next(events), next(events)
    engine.finish(session)
    assert session.result().finish_reason == "cancelled"
    assert len(session.result().text) == 2
    assert engine.active == () and engine.runtime.rows == ()


def test_a_random_seed_is_returned_and_reproduces() -> None:
    params = SamplingParams(max_tokens=10, temperature=1.0)
    first = answer(plain_engine(), PROMPT, params)
    assert first.seed is not None
    again = SamplingParams(max_tokens=10, temperature=1.0, seed=first.seed)
    assert answer(plain_engine(), PROMPT, again).token_ids == first.token_ids


def test_dynamic_acceptance_learns_in_its_own_request_and_forgets_on_demand() -> None:
    engine = tree_engine(CHAIN, prophet(plain(40)))
    params = SamplingParams(max_tokens=40, temperature=1.0, acceptance="dynamic")
    first = engine.start(PROMPT, params)
    fresh = first.rule
    while first.stats.accepted_by_depth[:1] in ([], [0]):
        engine.step()
    learnt = first.rule
    assert isinstance(learnt, DynamicRule) and learnt.verify_temperature < 1
    second = engine.start(PROMPT, params)
    assert second.rule == fresh and first.rule is learnt
    engine.reset_verification()
    assert first.rule == fresh
    engine.finish(first)
    engine.finish(second)
    assert (first.result().lossless, first.result().acceptance) == (False, "dynamic")


def test_an_answer_that_goes_on_from_text_keeps_its_first_space() -> None:
    """SentencePiece: after text the space is said; after a control token, as in most chats, it is the vocabulary's."""
    tokenizer = spm_tokenizer()
    the, bos = tokenizer.encode("the")[0], 1
    engine = Engine(ScriptedRuntime(Script((the,), tokenizer.vocab_size)), tokenizer, PlainController())
    assert tokenizer.token_bytes(the) == b" the"
    text = tokenizer.encode("in", add_special=True)
    found = answer(engine, text, SamplingParams(max_tokens=2))
    assert tokenizer.decode(text) + found.text == tokenizer.decode([*text, *found.token_ids]) == "in the the"
    assert answer(engine, [bos], SamplingParams(max_tokens=2)).text == "the the"
