"""Answers in a given form by a random model over bytes, whatever drafts."""

from __future__ import annotations

from engine_fakes import Prophet
from fakes import ByteTokenizer
from medusakit.drafters.base import Drafter
from medusakit.drafters.hybrid.drafter import HybridDrafter, Source
from medusakit.drafters.registry import HEADLESS, headless_drafter
from medusakit.engine.controller import FixedController, PlainController
from medusakit.engine.engine import Engine
from medusakit.engine.events import GenerationResult
from medusakit.engine.plan import make_plan
from medusakit.runtimes.reference import random_reference
from medusakit.settings import SamplingParams
from medusakit.text.control import ControlSplitter
from medusakit.text.vocabulary import ControlToken
from medusakit.tree.policy import DynamicPolicy, StaticPolicy, TreePolicy
from medusakit.tree.topology import Topology

PROMPT = [256, 65, 66, 67]
CONTROL_MARK, THINK, TEXT_MARK, CALL_MARK, ARGS_MARK = range(258, 263)


class MarkedTokenizer(ByteTokenizer):
    """Bytes, two control tokens, and `<tool_call>` as one token of plain text, as several vocabularies have it."""

    vocab_size = 261
    special_ids = ByteTokenizer.special_ids | {CONTROL_MARK, THINK}
    control = ControlSplitter([ControlToken(CONTROL_MARK, "[TOOL_CALLS]"), ControlToken(THINK, "<think>")])
    spelled = {CONTROL_MARK: b"[TOOL_CALLS]", THINK: b"<think>", TEXT_MARK: b"<tool_call>"}

    def token_bytes(self, token_id: int) -> bytes:
        return self.spelled.get(token_id) or super().token_bytes(token_id)


class IdTokenizer(MarkedTokenizer):
    """With the control tokens of calls that have an id, as Mistral's newer vocabularies have them."""

    vocab_size = 263
    special_ids = MarkedTokenizer.special_ids | {CALL_MARK, ARGS_MARK}
    spelled = MarkedTokenizer.spelled | {CALL_MARK: b"[CALL_ID]", ARGS_MARK: b"[ARGS]"}
    control = ControlSplitter(
        ControlToken(token, text.decode()) for token, text in spelled.items() if token != TEXT_MARK
    )


class TagTokenizer(MarkedTokenizer):
    """With the tags of parameters as control tokens."""

    vocab_size = 267
    tags = dict(
        enumerate(("<tool_call>", "</tool_call>", "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"), 261)
    )
    special_ids = MarkedTokenizer.special_ids | tags.keys()
    spelled = MarkedTokenizer.spelled | {token: text.encode() for token, text in tags.items()}
    control = ControlSplitter(ControlToken(token, text) for token, text in tags.items())


def answers(
    params: SamplingParams,
    drafter: Drafter | None = None,
    policy: TreePolicy | None = None,
    times: int = 1,
    tokenizer: ByteTokenizer | None = None,
) -> list[GenerationResult]:
    """Of a random model; what the first answers taught drafts the later ones."""
    tokenizer = tokenizer or ByteTokenizer()
    plan = make_plan(drafter, policy, 12) if drafter and policy else None
    runtime = random_reference(7, tokenizer.vocab_size, context_length=256, max_rows=1)
    engine = Engine(runtime, tokenizer, FixedController(plan) if plan else PlainController())
    found: list[GenerationResult] = []
    for _ in range(times):
        session = engine.start(PROMPT, params)
        for _ in engine.run(session):
            pass
        engine.finish(session)
        found.append(session.result())
    return found


def drafting(name: str, vocab_size: int = ByteTokenizer.vocab_size) -> tuple[Drafter, TreePolicy]:
    if name == "noise":
        return Prophet(0.0, vocab_size=vocab_size), StaticPolicy(Topology.dense([3, 2]))
    if name == "hybrid":
        drafter = HybridDrafter([Source(*headless_drafter(one, vocab_size=vocab_size)) for one in HEADLESS])
        return drafter, DynamicPolicy(drafter.beam)
    alone, beam = headless_drafter(name, vocab_size=vocab_size)
    return alone, DynamicPolicy(beam)
