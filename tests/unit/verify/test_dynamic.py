"""Dynamic acceptance: what the verify temperature follows, and how paths are weighed."""

import math

import numpy as np
import pytest

from fakes import scores
from medusakit.settings import SamplingParams
from medusakit.tree.topology import Topology, Tree
from medusakit.verify.rules import make_rule
from medusakit.verify.walk import walk


def fresh(temperature=1.0, **settings):
    return make_rule(SamplingParams(temperature=temperature, acceptance="dynamic", **settings), seed=0, vocab_size=4)


def after(rule, steps):
    for offered, accepted in steps:
        rule = rule.after(offered, accepted)
    return rule


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        ([], 1.0),
        ([(0, 0)] * 9, 1.0),  # plain steps offered nothing
        ([(4, 0)], 1.0),
        ([(4, 4)], 0.7),
        ([(2, 1)], 1 - 0.3 * 0.75),  # rho 0.5, D 2
        ([(1, 1), (3, 1), (0, 0)], 1 - 0.3 * 0.75),  # the same rho and D; the plain step does not count
        ([(4, 4)] * 50 + [(2, 1)] * 64, 1 - 0.3 * 0.75),  # 64 steps are remembered
    ],
)
def test_the_verify_temperature_follows_running_acceptance(steps, expected):
    assert after(fresh(), steps).verify_temperature == pytest.approx(expected)


def test_a_step_makes_a_new_rule_and_leaves_the_old_one():
    rule = fresh()
    assert rule.after(4, 4).verify_temperature < 1 == rule.verify_temperature


def test_it_is_a_factor_of_the_requests_temperature_and_makes_acceptance_stricter():
    flat = scores([np.log([0.85, 0.1, 0.03, 0.02])])
    children = [(1, 0), (2, 1)]
    assert fresh().decide(flat, 0, children, [0]).accepted == (1, 2)
    colder = after(fresh(), [(4, 4)]).decide(flat, 0, children, [0])
    assert colder.accepted == (1,)  # 0.1 became 0.041 at 0.7
    as_typical = make_rule(SamplingParams(temperature=0.7, acceptance="typical"), seed=0, vocab_size=4)
    assert colder == as_typical.decide(flat, 0, children, [0])
    assert colder == after(fresh(2.0), [(4, 4)]).decide(scores([2 * flat.logits(0)]), 0, children, [0])


TREE = Tree(Topology.from_parents([-1, 0, 0, 1]), np.array([3, 0, 1, 2]))  # node 3, token 2, follows node 1, token 0


@pytest.mark.parametrize(("unlikely", "kept"), [(0.2, (0, 1, 3)), (1e-6, (0, 2))])
def test_length_yields_only_to_much_more_probable_paths(unlikely, kept):
    """Path 1-3 scores 2 + 0.15 (log .3 + log unlikely), path 2 scores 1 + 0.15 log .6."""
    node_scores = scores(np.log([[0.3, 0.6, 0.06, 0.04], [1 - 3 * unlikely, *[unlikely] * 3], [0.25] * 4, [0.25] * 4]))
    rule = fresh(eps=1e-7)
    longer, shorter = 2 + 0.15 * math.log(0.3 * unlikely), 1 + 0.15 * math.log(0.6)
    assert (longer > shorter) == (kept == (0, 1, 3))
    assert walk(TREE, node_scores, rule, [3]).nodes == kept
