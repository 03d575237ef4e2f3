"""Which rule a request means, what it computes, and which values are refused."""

import math
from dataclasses import replace

import numpy as np
import pytest

from fakes import scores
from medusakit.errors import UsageError
from medusakit.settings import SamplingParams
from medusakit.verify.rules import make_rule

LOGITS = scores([[0.0, 2.0, 1.0, 2.0]])


def rule_of(params, **keywords):
    return make_rule(params, seed=0, vocab_size=4, **keywords)


@pytest.mark.parametrize(
    ("params", "name", "lossless"),
    [
        (SamplingParams(), "greedy", True),
        (SamplingParams(temperature=0.7), "sample", True),
        (SamplingParams(temperature=0.7, acceptance="typical"), "typical", False),
        (SamplingParams(temperature=0.7, acceptance="dynamic"), "dynamic", False),
        (SamplingParams(acceptance="typical"), "greedy", True),  # at temperature 0 p is one-hot
    ],
)
def test_names_and_labels(params, name, lossless):
    rule = rule_of(params)
    assert (rule.name, rule.lossless) == (name, lossless)


def test_greedy_takes_the_lowest_id_of_equals_and_reads_no_logits():
    class OnlyArgmax:
        num_nodes = 1

        def argmax(self, node):
            return 1

    verdict = rule_of(SamplingParams()).decide(OnlyArgmax(), 0, [(1, 3), (2, 1)], [0])
    assert (verdict.pick, verdict.accepted) == (1, (2,))
    assert math.isnan(verdict.logprob)


@pytest.mark.parametrize("change", [{}, {"temperature": 0.5, "seed": 1, "logit_bias": {1: 100.0}}])
def test_log_probabilities_are_the_models_own_whatever_the_request_changes(change):
    verdict = rule_of(SamplingParams(logprobs=2, **change)).decide(LOGITS, 0, [(1, 1)], [0])
    total = math.log(1 + 2 * math.e**2 + math.e)
    assert (verdict.pick, verdict.accepted) == (1, (1,))
    assert verdict.logprob == pytest.approx(2 - total, abs=1e-6)
    assert [token for token, _ in verdict.top] == [1, 3]  # lower id first of equals
    assert [logprob for _, logprob in verdict.top] == pytest.approx([2 - total] * 2, abs=1e-6)
    assert len(rule_of(SamplingParams(logprobs=20)).decide(LOGITS, 0, [], [0]).top) == 4


def test_greedy_with_bias_and_penalties_takes_the_best_of_what_is_left():
    assert rule_of(SamplingParams(logit_bias={2: 1.5})).decide(LOGITS, 0, [(1, 2)], [0]).accepted == (1,)
    assert rule_of(SamplingParams(frequency_penalty=0.6)).decide(LOGITS, 0, [], [1, 1]).pick == 3


def test_typical_accepts_over_the_threshold_and_says_how_probable():
    params = SamplingParams(temperature=1.0, acceptance="typical")
    flat, sharp = scores([[0.0] * 4]), scores([[0.0, 9.0, 0.0, 0.0]])
    children = [(1, 0), (2, 1)]
    assert rule_of(params).decide(flat, 0, children, [0]).accepted == (1, 2)  # .25 > .3 * exp(-log 4) = .075
    verdict = rule_of(params).decide(sharp, 0, children, [0])
    assert (verdict.accepted, verdict.pick) == ((2,), 1)
    assert verdict.weight == pytest.approx((-math.log(1 + 3 * math.exp(-9)),), abs=1e-6)


def test_typical_accepts_nothing_that_was_filtered_out():
    params = SamplingParams(temperature=1.0, acceptance="typical", top_k=2)
    assert rule_of(params).decide(LOGITS, 0, [(1, 0), (2, 3)], [0]).accepted == (2,)


def test_seed_choice_and_position_give_other_draws():
    flat = scores([np.zeros(4000)])
    params = SamplingParams(temperature=1.0)

    def draw(seed, choice, position):
        rule = make_rule(replace(params, choice=choice), seed=seed, vocab_size=4000)
        return rule.decide(flat, 0, [], [0] * position).pick

    assert draw(1, 0, 5) == draw(1, 0, 5)
    assert len({draw(1, 0, 5), draw(2, 0, 5), draw(1, 1, 5), draw(1, 0, 6), draw(1 + 2**32, 0, 5)}) == 5


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"max_tokens": 0}, "max_tokens is 0; expected a whole number, 1 or more"),
        ({"temperature": -1.0}, r"temperature is -1.0; expected 0 \(greedy\), or a number from 0.0001 to 100"),
        ({"temperature": float("nan")}, "temperature is nan"),
        ({"temperature": "hot"}, "temperature is 'hot'"),
        ({"top_k": -1}, r"top_k is -1; expected a whole number, 0 or more \(0: off\)"),
        ({"top_k": 2.5}, "top_k is 2.5"),
        ({"top_p": 0.0}, "top_p is 0.0; expected a number above 0 to 1"),
        ({"top_p": 1.1}, "top_p is 1.1"),
        ({"min_p": 1.5}, "min_p is 1.5; expected a number from 0 to 1"),
        ({"logprobs": 21}, "logprobs is 21; expected a whole number, 0 to 20"),
        ({"logprobs": 1, "acceptance": "typical"}, "logprobs goes with exact acceptance, not typical"),
        ({"choice": -1}, "choice is -1"),
        ({"repetition_penalty": 0.0}, "repetition_penalty is 0.0; expected a number from 0.01 to 100"),
        ({"presence_penalty": 3.0}, "presence_penalty is 3.0; expected a number from -2 to 2"),
        ({"frequency_penalty": -3.0}, "frequency_penalty is -3.0"),
        ({"logit_bias": {4: 1.0}}, "logit_bias has token id 4; this model's ids are 0 to 3"),
        ({"logit_bias": {-1: 1.0}}, "a token id of logit_bias is -1"),
        ({"logit_bias": {1: 101.0}}, "logit_bias of token 1 is 101.0; expected a number from -100 to 100"),
        ({"seed": -1}, "seed is -1; expected a whole number, 0 to 18446744073709551615"),
        ({"stop": "end"}, "stop is 'end'; expected a tuple of non-empty strings"),
        ({"stop": ("",)}, "stop is"),
        ({"acceptance": "lossy"}, "acceptance is 'lossy'; expected one of exact, typical, dynamic"),
        ({"acceptance": "dynamic"}, "dynamic acceptance scales the temperature, and temperature is 0"),
        ({"eps": 0.0}, "eps is 0.0"),
        ({"delta": -0.1}, "delta is -0.1"),
    ],
)
def test_values_out_of_range_are_named_with_their_range(change, message):
    with pytest.raises(UsageError, match=message):
        rule_of(SamplingParams(**change))
