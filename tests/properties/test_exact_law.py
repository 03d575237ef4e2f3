"""Speculative sampling on a toy model: the same sequence as plain sampling, and the law that enumeration gives."""

import numpy as np
import pytest

from fakes import scores
from medusakit.runtimes.reference import random_reference
from medusakit.settings import SamplingParams
from medusakit.tree.topology import Topology, Tree
from medusakit.verify.base import Verdict
from medusakit.verify.rules import make_rule
from medusakit.verify.walk import walk

PROMPT = [1, 0, 2]


def generate(runtime, params, seed, num_tokens, draft):
    """Tokens after the prompt, through trees that `draft(ids)` proposes: the engine's step without the engine."""
    rule = make_rule(params, seed=seed, vocab_size=runtime.spec.vocab_size, num_prompt_tokens=len(PROMPT))
    row = runtime.add_row()
    ids = list(PROMPT)
    ids.append(rule.decide(runtime.prefill(row, ids), 0, (), ids).pick)
    num_steps = 0
    while len(ids) < len(PROMPT) + num_tokens:
        tree = draft(ids)
        path = walk(tree, runtime.forward([(row, tree)])[0], rule, ids)
        runtime.commit(row, path.nodes)
        ids.extend(path.token_ids)
        num_steps += 1
    runtime.drop_row(row)
    return ids[len(PROMPT) :][:num_tokens], num_steps


def plain(ids):
    return Tree.plain(ids[-1])


def random_trees(seed, vocab_size, max_nodes=10, *, favourites=False):
    """Drafts that know nothing: another random tree at every step, with random distinct siblings, or with favourites:
    the i-th child always carries token i (so that a bias towards drafted tokens does not average out)."""
    random = np.random.default_rng(seed)

    def draft(ids):
        parents = [-1] + [int(random.integers(0, node)) for node in range(1, random.integers(1, max_nodes + 1))]
        tokens = [ids[-1]] + [0] * (len(parents) - 1)
        shape = Topology.from_parents(parents)
        for children in shape.children:
            order = range(vocab_size) if favourites else random.permutation(vocab_size)
            for child, token in zip(children, order, strict=False):
                tokens[child] = int(token)
        return Tree(shape, np.array(tokens))

    return draft


PARAMS = [
    SamplingParams(),
    SamplingParams(repetition_penalty=1.5, frequency_penalty=0.3),
    SamplingParams(temperature=0.8),
    SamplingParams(temperature=1.2, top_p=0.9, presence_penalty=0.5),
    SamplingParams(temperature=1.0, top_k=4, min_p=0.02, logit_bias={3: 1.0}),
]


@pytest.mark.parametrize("params", PARAMS)
def test_trees_give_the_sequence_of_plain_decoding(params):
    vocab_size, num_tokens = 12, 40
    runtime = random_reference(7, vocab_size, sharpness=1.5)
    for seed in range(4):
        expected, _ = generate(runtime, params, seed, num_tokens, plain)
        got, num_steps = generate(runtime, params, seed, num_tokens, random_trees(seed, vocab_size))
        assert got == expected
        assert num_steps < num_tokens - 1  # something was accepted, so this tested more than plain decoding


VOCAB, LENGTH = 4, 3


def all_contexts(runtime):
    """{tokens so far: logits [V]} of every sequence shorter than LENGTH, by one pass over the complete tree."""
    row = runtime.add_row()
    runtime.prefill(row, PROMPT[:-1])
    shape = Topology.dense([VOCAB] * (LENGTH - 1))
    tree = Tree(shape, np.array([PROMPT[-1], *(path[-1] for path in shape.rank_paths[1:])]))
    result = runtime.forward([(row, tree)])[0]
    return {path: result.logits(node) for node, path in enumerate(shape.rank_paths)}


def exact_law(logits):
    law = {}
    for index in range(VOCAB**LENGTH):
        sequence = tuple(index // VOCAB**place % VOCAB for place in range(LENGTH))
        law[sequence] = 1.0
        for length in range(LENGTH):
            weights = np.exp(logits[sequence[:length]].astype(np.float64))
            law[sequence] *= weights[sequence[length]] / weights.sum()
    return law


def sampled(logits, rule, draft):
    """One sequence: steps through trees whose scores come from the table of all contexts."""
    ids = list(PROMPT)
    while len(ids) < len(PROMPT) + LENGTH:
        tree = draft(ids)
        done = tuple(ids[len(PROMPT) :])
        paths = [tuple(int(tree.tokens[i]) for i in tree.topology.path(node)[1:]) for node in range(tree.num_nodes)]
        rows = [logits.get(done + path, np.zeros(VOCAB)) for path in paths]  # past LENGTH nothing is used
        ids.extend(walk(tree, scores(rows), rule, ids).token_ids)
    return tuple(ids[len(PROMPT) :][:LENGTH])


def chi_square(law, drawn):
    """(statistic, degrees of freedom), sequences expected fewer than five times taken together."""
    counts = dict.fromkeys(law, 0)
    for sequence in drawn:
        counts[sequence] += 1
    expected = {sequence: p * len(drawn) for sequence, p in law.items()}
    cells = [(counts[s], e) for s, e in expected.items() if e >= 5]
    rest = [(counts[s], e) for s, e in expected.items() if e < 5]
    if rest:
        cells.append((sum(c for c, _ in rest), sum(e for _, e in rest)))
    return sum((c - e) ** 2 / e for c, e in cells), len(cells) - 1


class FreshDrawAfterMiss:
    """The fault of published code: where no child carries the draw, another draw is emitted instead."""

    name, lossless, path_weight = "biased", False, 0.0

    def __init__(self, seed):
        params = [SamplingParams(temperature=1.0, choice=choice) for choice in (0, 1)]
        self._first, self._second = (make_rule(one, seed=seed, vocab_size=VOCAB) for one in params)

    def decide(self, scores, node, children, history):
        verdict = self._first.decide(scores, node, children, history)
        return verdict if verdict.accepted else Verdict((), self._second.decide(scores, node, (), history).pick)


def drawn_by(make, logits, number):
    trees = random_trees(5, VOCAB, max_nodes=5, favourites=True)
    return [sampled(logits, make(seed), trees) for seed in range(number)]


def test_sequences_through_trees_have_the_enumerated_law_and_the_test_would_see_a_bias():
    logits = all_contexts(random_reference(3, VOCAB, sharpness=1.0))
    law = exact_law(logits)
    assert sum(law.values()) == pytest.approx(1)

    def sample(seed):
        return make_rule(SamplingParams(temperature=1.0), seed=seed, vocab_size=VOCAB)

    statistic, freedom = chi_square(law, drawn_by(sample, logits, 3000))
    assert freedom > 20
    assert statistic < freedom + 5 * np.sqrt(2 * freedom)
    biased, freedom = chi_square(law, drawn_by(FreshDrawAfterMiss, logits, 1500))
    assert biased > freedom + 15 * np.sqrt(2 * freedom)
