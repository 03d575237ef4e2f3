"""The distance of two tokens in a rule's own comparison: zero at a tie, what was planted elsewhere."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fakes import scores
from medusakit.settings import SamplingParams
from medusakit.verify.gap import margin, score_gap
from medusakit.verify.processors import Filter
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


def test_a_token_past_an_edge_is_measured_to_it() -> None:
    """Token 0 is third. Where it would not be drawn even past the edge, the gap is larger than the distance to it."""
    p = np.exp(LOGITS) / np.exp(LOGITS).sum()
    for changes, edge in (
        ({"top_p": 0.8}, p[1] + p[2] - 0.8),
        ({"top_k": 1}, 2.0 - 0.5),
        ({"top_k": 2}, 1.75 - 0.5),
        ({"min_p": 0.5}, 1.5 - np.log(2)),
        ({"top_k": 2, "min_p": 0.5}, 1.75 - 0.5),
        ({"top_k": 2, "min_p": 0.9}, 1.5 + np.log(0.9)),
    ):
        gaps = []
        for seed in range(60):
            rule = make_rule(SamplingParams(temperature=1.0, **changes), seed=seed, vocab_size=4)  # type: ignore[arg-type]
            pick = rule.decide(scores([LOGITS]), 0, (), [0]).pick
            gaps.append(score_gap(rule, LOGITS, [0], pick, 0))
        assert min(gaps) == pytest.approx(edge, abs=1e-6), changes
        assert max(gaps) > edge + 0.05 or len(changes) == 2 or changes == {"top_k": 1}


def random_filters(rng: np.random.Generator) -> dict[str, Any]:
    """Edges that lie exactly on values which the logits below take."""
    changes: dict[str, Any] = {"temperature": float(rng.choice([0.5, 1.0, 2.0]))}
    if rng.random() < 0.6:
        changes["top_k"] = int(rng.integers(1, 9))
    if rng.random() < 0.6:
        changes["min_p"] = float(np.exp(-0.5 * rng.integers(1, 5) / changes["temperature"]))
    if rng.random() < 0.6:
        changes["top_p"] = float(rng.choice([0.5, 0.75, 0.9]))
    return changes


def test_rounding_only_ever_parts_at_a_tie() -> None:
    """Brute force: logits full of ties, shaken by 1e-4. Wherever another token is drawn, the gap is of that size."""
    rng, noise, flips = np.random.default_rng(0), 1e-4, 0
    for seed in range(3000):
        logits = (0.5 * rng.integers(0, 6, 10)).astype(np.float32)
        rule = make_rule(SamplingParams(**random_filters(rng)), seed=seed, vocab_size=10)
        pick = rule.decide(scores([logits]), 0, (), [0]).pick
        shaken = logits + rng.uniform(-noise, noise, 10).astype(np.float32)
        other = rule.decide(scores([shaken]), 0, (), [0]).pick
        if other != pick:
            flips += 1
            assert score_gap(rule, logits, [0], pick, other) < 10 * noise
    assert flips > 100


def test_a_margin_is_what_moves_a_token_over_the_edge() -> None:
    """Brute force: moved by slightly more than its margin a token changes sides, by slightly less it does not."""
    rng, tried = np.random.default_rng(1), 0
    for _ in range(300):
        logits = rng.normal(size=10).astype(np.float32)
        token = int(rng.integers(0, 10))
        if token == logits.argmax():
            continue
        k, temperature = int(rng.integers(1, 10)), float(rng.choice([0.5, 2.0]))
        for kept in (Filter(temperature, top_k=k), Filter(temperature, min_p=float(rng.uniform(0.05, 0.9)))):
            distance = margin(kept, (logits - logits.max()) / np.float32(temperature), token)
            for share, same in ((0.99, True), (1.01, False)):
                moved = logits.copy()
                moved[token] -= share * distance * temperature
                survives = kept.apply(moved).index(token) is not None
                assert survives == ((distance >= 0) == same)
                tried += 1
    assert tried > 1000


def test_a_top_p_margin_in_mass_is_what_moves_the_edge_over_a_token() -> None:
    rng, tried = np.random.default_rng(2), 0
    for _ in range(300):
        logits, top_p = rng.normal(size=10).astype(np.float32), float(rng.uniform(0.2, 0.9))
        token = int(rng.integers(0, 10))
        z = logits - logits.max()
        distance = margin(Filter(top_p=top_p), z, token)
        before = float(np.exp(z[z > z[token]]).sum() / np.exp(z).sum())
        if abs(distance) != pytest.approx(abs(top_p - before)):
            continue  # a token that it would change places with is closer
        for share, same in ((0.99, True), (1.01, False)):
            edge = top_p - share * distance
            if 0 < edge < 1:
                survives = Filter(top_p=edge).apply(logits).index(token) is not None
                assert survives == ((distance >= 0) == same)
                tried += 1
    assert tried > 300


def test_lossy_rules_have_no_gap() -> None:
    rule = make_rule(SamplingParams(temperature=1.0, acceptance="typical"), seed=0, vocab_size=4)
    with pytest.raises(TypeError, match="typical"):
        score_gap(rule, LOGITS, [0], 0, 1)
