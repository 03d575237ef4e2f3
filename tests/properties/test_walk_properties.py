"""The walk equals brute force over all paths, for random trees and scores and every rule."""

import math
from dataclasses import dataclass

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from fakes import scores
from medusakit.settings import SamplingParams
from medusakit.tree.topology import Topology, Tree
from medusakit.verify.rules import make_rule
from medusakit.verify.walk import walk

VOCAB = 6
HISTORY = [1, 2, 3]


@st.composite
def trees(draw, max_nodes=12):
    """Any tree; siblings carry distinct tokens."""
    parents = [-1] + [draw(st.integers(0, node)) for node in range(draw(st.integers(0, max_nodes - 1)))]
    shape = Topology.from_parents(parents)
    tokens = np.zeros(shape.num_nodes, dtype=np.int64)
    for children in shape.children:
        order = draw(st.permutations(range(VOCAB)))
        if len(children) > VOCAB:
            return draw(trees(max_nodes))
        tokens[list(children)] = order[: len(children)]
    return Tree(shape, tokens)


@st.composite
def trees_with_scores(draw):
    tree = draw(trees())
    seed, sharpness = draw(st.integers(0, 2**32)), draw(st.sampled_from([0.3, 1.0, 4.0]))
    logits = np.random.default_rng(seed).standard_normal((tree.num_nodes, VOCAB)) * sharpness
    # the model follows some drafted path now and then, so that deep walks are common
    for node in range(1, tree.num_nodes):
        if draw(st.booleans()):
            logits[tree.topology.parents[node], tree.tokens[node]] += 3
    return tree, scores(logits)


def all_paths(tree):
    return [tree.topology.path(node) for node in range(tree.num_nodes)]


def path_history(tree, path):
    return HISTORY + [int(tree.tokens[node]) for node in path[1:]]


def picks(tree, node_scores, params):
    """The token that plain decoding picks after every node, by a naive reading of the rule without any tree."""
    rule = make_rule(params, seed=5, vocab_size=VOCAB)
    return {path[-1]: rule.decide(node_scores, path[-1], (), path_history(tree, path)).pick for path in all_paths(tree)}


def longest_exact(tree, picked):
    """Of the paths on which every edge carries the pick of its upper end, the longest (there is only one chain)."""
    good = [
        path for path in all_paths(tree)
        if all(int(tree.tokens[child]) == picked[parent] for parent, child in zip(path, path[1:], strict=False))
    ]  # fmt: skip
    return max(good, key=len)


EXACT = [
    SamplingParams(),
    SamplingParams(repetition_penalty=1.7, frequency_penalty=0.5, logit_bias={2: 1.5}),
    SamplingParams(temperature=0.8),
    SamplingParams(temperature=1.3, top_k=3, presence_penalty=1.0),
    SamplingParams(temperature=1.0, top_p=0.7, min_p=0.05),
]


@given(trees_with_scores(), st.sampled_from(EXACT))
@settings(max_examples=150, deadline=None)
def test_exact_rules_equal_brute_force(case, params):
    tree, node_scores = case
    picked = picks(tree, node_scores, params)
    best = longest_exact(tree, picked)
    kept = walk(tree, node_scores, make_rule(params, seed=5, vocab_size=VOCAB), HISTORY)
    assert list(kept.nodes) == best
    assert list(kept.token_ids) == [*tree.tokens[best[1:]].tolist(), picked[best[-1]]]
    assert kept.num_visited == len(best)


@dataclass(frozen=True)
class Acceptable:
    """Every path that typical acceptance at a temperature allows, by a naive reading: its sum of log p, and the best
    token after it."""

    value: dict
    bonus: dict


def acceptable_paths(tree, node_scores, temperature, eps, delta):
    def log_p(node):
        z = node_scores.logits(node).astype(np.float64) / temperature
        return z - z.max() - math.log(np.exp(z - z.max()).sum())

    def acceptable(parent, token):
        p = np.exp(log_p(parent))
        entropy = -(p * np.log(p)).sum()
        return p[token] > min(eps, delta * math.exp(-entropy))

    good = [
        path for path in all_paths(tree)
        if all(acceptable(parent, tree.tokens[child]) for parent, child in zip(path, path[1:], strict=False))
    ]  # fmt: skip
    value = {
        tuple(path): sum(log_p(parent)[tree.tokens[child]] for parent, child in zip(path, path[1:], strict=False))
        for path in good
    }
    return Acceptable(value, {path: log_p(path[-1]).argmax() for path in value})


def check_path(kept, allowed, key):
    best = max(allowed.value, key=key)
    assert kept.nodes == best
    assert kept.bonus_id == allowed.bonus[best]
    np.testing.assert_allclose(sum(kept.logprobs[:-1]), allowed.value[best], atol=1e-4)


TEMPERATURES = st.sampled_from([0.3, 1.0, 2.0])
THRESHOLDS = st.sampled_from([(0.09, 0.3), (0.3, 0.55), (0.01, 0.1)])


@given(trees_with_scores(), TEMPERATURES, THRESHOLDS)
@settings(max_examples=150, deadline=None)
def test_typical_equals_brute_force(case, temperature, threshold):
    tree, node_scores = case
    eps, delta = threshold
    params = SamplingParams(temperature=temperature, acceptance="typical", eps=eps, delta=delta)
    kept = walk(tree, node_scores, make_rule(params, seed=0, vocab_size=VOCAB), HISTORY)
    allowed = acceptable_paths(tree, node_scores, temperature, eps, delta)
    check_path(kept, allowed, lambda path: (len(path), allowed.value[path]))


@given(
    trees_with_scores(),
    TEMPERATURES,
    THRESHOLDS,
    st.lists(st.tuples(st.integers(0, 5), st.floats(0, 1)), max_size=100),
)
@settings(max_examples=150, deadline=None)
def test_dynamic_equals_brute_force(case, temperature, threshold, shares):
    tree, node_scores = case
    eps, delta = threshold
    params = SamplingParams(temperature=temperature, acceptance="dynamic", eps=eps, delta=delta)
    rule, steps = make_rule(params, seed=0, vocab_size=VOCAB), []
    for offered, share in shares:
        rule = rule.after(offered, int(share * offered))
        steps += [(offered, int(share * offered))] * (offered > 0)
    recent, factor = steps[-64:], 1.0
    if recent:
        rho = sum(accepted for _, accepted in recent) / sum(offered for offered, _ in recent)
        depth = sum(offered for offered, _ in recent) / len(recent)
        factor = max(0.7, 1 - 0.3 * (1 - (1 - rho) ** depth))
    kept = walk(tree, node_scores, rule, HISTORY)
    allowed = acceptable_paths(tree, node_scores, factor * temperature, eps, delta)
    check_path(kept, allowed, lambda path: len(path) - 1 + 0.15 * allowed.value[path])


LOSSY = [SamplingParams(temperature=0.7, acceptance=name) for name in ("typical", "dynamic")]


@given(trees_with_scores(), st.sampled_from([*EXACT, *LOSSY]))
@settings(max_examples=60, deadline=None)
def test_shared_scores_are_never_written(case, params):
    tree, node_scores = case
    before = node_scores.rows.copy()
    walk(tree, node_scores, make_rule(params, seed=1, vocab_size=VOCAB), HISTORY)
    assert np.array_equal(node_scores.rows, before)
