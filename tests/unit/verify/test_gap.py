"""The distance of two tokens in a rule's own comparison: zero at a tie, what was planted elsewhere."""

from __future__ import annotations

import numpy as np
import pytest

from fakes import scores
from medusakit.settings import SamplingParams
from medusakit.verify.gap import score_gap
from medusakit.verify.rules import make_rule

LOGITS = np.array([0.5, 2.0, 1.75, -1.0], dtype=np.float32)


def test_greedy_is_the_difference_of_logits_after_adjustments() -> None:
    plain = make_rule(SamplingParams(), seed=0, vocab_size=4)
    assert score_gap(plain, LOGITS, [0], 1, 2) == pytest.approx(0.25)
    biased = make_rule(SamplingParams(logit_bias={2: 0.25}), seed=0, vocab_size=4)
    assert score_gap(biased, LOGITS, [0], 1, 2) == pytest.approx(0.0)


def test_sampling_is_the_distance_that_would_flip_the_draw() -> None:
    """Raising the loser's logit by slightly more than the gap makes it the draw; by slightly less does not."""
    for seed in range(30):
        rule = make_rule(SamplingParams(temperature=1.0), seed=seed, vocab_size=4)
        pick = rule.decide(scores([LOGITS]), 0, (), [0, 0]).pick
        loser = (pick + 1) % 4
        gap = score_gap(rule, LOGITS, [0, 0], pick, loser)
        for change, expected in ((0.99, pick), (1.01, loser)):
            raised = LOGITS.copy()
            raised[loser] += gap * change
            assert rule.decide(scores([raised]), 0, (), [0, 0]).pick == expected


def test_a_token_past_the_top_p_edge_is_measured_in_mass() -> None:
    rule = make_rule(SamplingParams(temperature=1.0, top_p=0.8), seed=0, vocab_size=4)
    p = np.exp(LOGITS) / np.exp(LOGITS).sum()
    assert score_gap(rule, LOGITS, [0], 1, 0) == pytest.approx(p[1] + p[2] - 0.8, abs=1e-6)
    top_k = make_rule(SamplingParams(temperature=1.0, top_k=1), seed=0, vocab_size=4)
    assert score_gap(top_k, LOGITS, [0], 1, 0) == float("inf")


def test_lossy_rules_have_no_gap() -> None:
    rule = make_rule(SamplingParams(temperature=1.0, acceptance="typical"), seed=0, vocab_size=4)
    with pytest.raises(TypeError, match="typical"):
        score_gap(rule, LOGITS, [0], 0, 1)
