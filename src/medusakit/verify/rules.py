"""Which acceptance rule a request means."""

from __future__ import annotations

from medusakit.errors import UsageError
from medusakit.settings import SamplingParams
from medusakit.verify.base import Acceptance
from medusakit.verify.dynamic import DynamicRule
from medusakit.verify.greedy import GreedyRule
from medusakit.verify.masked import GrammarRule
from medusakit.verify.philox import Noise
from medusakit.verify.processors import Adjustments, Filter
from medusakit.verify.report import ReportingRule
from medusakit.verify.sample import SampleRule
from medusakit.verify.typical import TypicalRule


def make_rule(
    params: SamplingParams,
    *,
    seed: int,
    vocab_size: int,
    num_prompt_tokens: int = 0,
) -> Acceptance:
    """The rule of one sequence; it may cache counts of that sequence, so it is not shared between sequences.

    seed               of sampling, 0 .. 2**64 - 1 (the caller draws one where params.seed is None)
    num_prompt_tokens  tokens of the history that presence and frequency penalties do not count

    At temperature 0 `typical` is greedy: its p is then one-hot; `dynamic` is refused. Raises UsageError naming a
    parameter out of range.
    """
    params.validate()
    for token_id in params.logit_bias:
        if not 0 <= token_id < vocab_size:
            raise UsageError(
                f"logit_bias has token id {token_id}; this model's ids are 0 to {vocab_size - 1}",
                hint="the ids that llm.encode(text) gives",
            )
    rule = deciding_rule(params, seed, Adjustments.of(params, num_prompt_tokens))
    if params.grammar is not None:
        rule = GrammarRule(rule, params.grammar, num_prompt_tokens)
    return rule if params.logprobs is None else ReportingRule(rule, params.logprobs)


def deciding_rule(params: SamplingParams, seed: int = 0, adjustments: Adjustments | None = None) -> Acceptance:
    """The rule that picks tokens, which gives the whole its name; without what only masks scores or reports them."""
    if params.temperature == 0:
        return GreedyRule(adjustments)
    kept = Filter(params.temperature, params.top_k, params.top_p, params.min_p)
    typical = TypicalRule(kept, params.eps, params.delta, adjustments)
    if params.acceptance == "typical":
        return typical
    if params.acceptance == "dynamic":
        return DynamicRule(typical)
    return SampleRule(Noise(seed, params.choice), kept, adjustments)
