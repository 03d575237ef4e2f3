"""Processors against an independent, naive reading of their definitions, one token at a time in float64."""

import math
from collections import Counter

import numpy as np
import pytest

from medusakit.errors import RuntimeFailure
from medusakit.settings import SamplingParams
from medusakit.verify.history import PathHistory, TokenCounts
from medusakit.verify.processors import Adjustments, Filter

VOCAB = 200


def naive_adjust(logits, params, prompt, output):
    adjusted = []
    counts = Counter(output)
    for token, value in enumerate(logits.tolist()):
        if token in counts or token in prompt:
            value = value / params.repetition_penalty if value > 0 else value * params.repetition_penalty
        if token in counts:
            value -= params.presence_penalty + params.frequency_penalty * counts[token]
        adjusted.append(value + params.logit_bias.get(token, 0.0))
    return adjusted


def naive_filter(logits, params):
    """{id: probability} after temperature, top-k, top-p, min-p."""
    left = {i: value / params.temperature for i, value in enumerate(logits)}
    if params.top_k:
        kth = sorted(left.values(), reverse=True)[: params.top_k][-1]
        left = {i: value for i, value in left.items() if value >= kth}
    if params.top_p < 1:
        p = softmax(left)
        kept, mass = {}, 0.0
        for i in sorted(left, key=lambda i: (-left[i], i)):
            if mass >= params.top_p:
                break
            kept[i] = left[i]
            mass += p[i]
        left = kept
    p = softmax(left)
    best = max(p.values())
    return softmax({i: left[i] for i in left if p[i] >= params.min_p * best})


def softmax(scores):
    top = max(scores.values())
    weights = {i: math.exp(value - top) for i, value in scores.items()}
    total = sum(weights.values())
    return {i: weight / total for i, weight in weights.items()}


def processed(logits, params, prompt, output):
    adjustments = Adjustments.of(params, len(prompt))
    history = [*prompt, *output]
    adjusted = logits if adjustments is None else adjustments.apply(logits, history)
    kept = Filter(params.temperature, params.top_k, params.top_p, params.min_p).apply(adjusted)
    weights = np.exp(kept.z.astype(np.float64))
    ids = range(len(logits)) if kept.ids is None else kept.ids.tolist()
    return dict(zip(ids, (weights / weights.sum()).tolist(), strict=True))


PARAMS = [
    SamplingParams(temperature=0.7),
    SamplingParams(temperature=1.0, top_k=7),
    SamplingParams(temperature=1.0, top_k=1),
    SamplingParams(temperature=1.4, top_p=0.9),
    SamplingParams(temperature=0.5, top_p=0.05),
    SamplingParams(temperature=1.0, top_p=0.999),
    SamplingParams(temperature=1.0, min_p=0.1),
    SamplingParams(temperature=1.0, min_p=1.0),
    SamplingParams(temperature=0.9, top_k=40, top_p=0.8, min_p=0.02),
    SamplingParams(temperature=1.0, repetition_penalty=1.3),
    SamplingParams(temperature=1.0, repetition_penalty=0.8, presence_penalty=0.6, frequency_penalty=-0.4),
    SamplingParams(temperature=1.0, logit_bias={3: 100.0, 4: -100.0, 5: 2.5}, top_k=5),
    SamplingParams(temperature=0.8, top_k=50, top_p=0.95, repetition_penalty=1.1, logit_bias={0: 1.0}),
]


@pytest.mark.parametrize("params", PARAMS)
@pytest.mark.parametrize("spread", [0.2, 2.0, 12.0])
def test_equal_to_the_naive_reading(params, spread):
    random = np.random.default_rng(int(spread * 10))
    for _ in range(5):
        logits = (random.standard_normal(VOCAB) * spread).astype(np.float32)
        prompt, output = random.integers(0, VOCAB, 30).tolist(), random.integers(0, VOCAB, 40).tolist()
        expected = naive_filter(naive_adjust(logits, params, prompt, output), params)
        got = processed(logits, params, prompt, output)
        assert got.keys() == expected.keys()
        np.testing.assert_allclose([got[i] for i in sorted(got)], [expected[i] for i in sorted(got)], atol=1e-5)


def test_top_k_keeps_ties_and_top_p_takes_the_lower_id_of_them():
    logits = np.log(np.array([0.1, 0.3, 0.1, 0.3, 0.2], dtype=np.float32))
    assert Filter(top_k=4).apply(logits).ids.tolist() == [0, 1, 2, 3, 4]
    assert Filter(top_k=3).apply(logits).ids.tolist() == [1, 3, 4]
    assert Filter(top_p=0.25).apply(logits).ids.tolist() == [1]
    assert Filter(top_p=0.85).apply(logits).ids.tolist() == [0, 1, 3, 4]


def test_vocabulary_smaller_than_top_k():
    logits = np.array([1, 3, 2], dtype=np.float32)
    kept = Filter(top_k=50).apply(logits)
    assert kept.ids is None
    assert kept.z.tolist() == [-2, 0, -1]
    assert Filter(top_k=50, top_p=0.5).apply(logits).ids.tolist() == [1]


def test_large_vocabularies_take_the_short_cuts_and_agree():
    random = np.random.default_rng(3)
    for peak in (0.0, 20.0, 60.0):
        logits = (random.standard_normal(20_000) * 3).astype(np.float32)
        logits[77] += peak
        for params in (SamplingParams(temperature=1.0, top_k=50), SamplingParams(temperature=0.8, top_p=0.95)):
            expected = naive_filter(logits.astype(np.float64), params)
            assert processed(logits, params, [], []).keys() == expected.keys()


def test_an_id_at_minus_infinity_has_probability_zero():
    logits = np.array([0, -np.inf, 1], dtype=np.float32)
    for filter_ in (Filter(), Filter(top_k=2), Filter(top_p=0.9999), Filter(min_p=0.01), Filter(0.5)):
        kept = filter_.apply(logits)
        p = np.exp(kept.z)
        index = kept.index(1)
        assert index is None or p[index] == 0


@pytest.mark.parametrize("broken", [[np.nan, 0.0], [np.inf, 0.0], [-np.inf, -np.inf]])
def test_broken_scores_are_named(broken):
    with pytest.raises(RuntimeFailure, match="highest score is"):
        Filter().apply(np.array(broken, dtype=np.float32))


def test_nothing_asked_for_means_no_copy():
    assert Adjustments.of(SamplingParams(top_k=5, temperature=1.0), 3) is None


def test_prompt_counts_for_repetition_but_not_for_presence_and_frequency():
    logits = np.ones(4, dtype=np.float32)
    presence = Adjustments.of(SamplingParams(presence_penalty=1.0, frequency_penalty=0.5), 2)
    assert presence.apply(logits, [0, 1, 1, 1, 2]).tolist() == [1, -1, -0.5, 1]
    repetition = Adjustments.of(SamplingParams(repetition_penalty=2.0), 2)
    assert repetition.apply(logits, [0, 1, 1, 1, 2]).tolist() == [0.5, 0.5, 0.5, 1]


def counted(counts):
    return dict(zip(counts.ids.tolist(), counts.output.tolist(), strict=True))


def test_counts_follow_a_growing_a_cut_and_another_history():
    counts = TokenCounts(num_prompt_tokens=2)
    ids = [5, 6, 6, 7]
    assert counted(counts.at(ids)) == {5: 0, 6: 1, 7: 1}
    assert counted(counts.at(PathHistory(ids, (7, 8)))) == {5: 0, 6: 1, 7: 2, 8: 1}
    assert counted(counts.at(ids)) == {5: 0, 6: 1, 7: 1}
    ids += [7, 9]
    assert counted(counts.at(ids)) == {5: 0, 6: 1, 7: 2, 9: 1}
    del ids[3:]
    assert counted(counts.at(ids)) == {5: 0, 6: 1}
    ids[2] = 4
    assert counted(counts.at(ids)) == {4: 1, 5: 0, 6: 0}
    assert counted(counts.at([1])) == {1: 0}
    assert counted(counts.at(PathHistory([1], (2, 3)))) == {1: 0, 2: 0, 3: 1}
