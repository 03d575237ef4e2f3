"""Policies: prefixes of a static tree, best-first trees of a beam."""

import numpy as np
import pytest

from medusakit.tree.cost import StepCost
from medusakit.tree.policy import DynamicPolicy, StaticPolicy, TreePolicy
from medusakit.tree.topology import PLAIN, Beam, Draft, Topology


def draft_of(topology, logprobs, tokens=None):
    tokens = np.arange(100, 100 + topology.num_nodes) if tokens is None else np.asarray(tokens)
    return Draft(topology, tokens, np.asarray(logprobs, dtype=np.float32))


def test_static_takes_a_prefix_and_keeps_one_object_per_budget():
    shape = Topology.from_rank_paths([(0,), (1,), (0, 0), (2,)])
    policy = StaticPolicy(shape)
    draft = draft_of(shape, np.zeros(5))
    assert isinstance(policy, TreePolicy)
    assert policy.shape is shape
    assert policy.select(draft, 5).topology is shape
    assert policy.select(draft, 99).topology is shape
    small = policy.select(draft, 3)
    assert small.topology.parents.tolist() == [-1, 0, 0]
    assert small.tokens.tolist() == [100, 101, 102]
    assert policy.select(draft, 3).topology is small.topology


@pytest.mark.parametrize("budget", [1, 0, -3])
def test_static_budget_of_one_is_plain_decoding(budget):
    policy = StaticPolicy(Topology.chain(3))
    tree = policy.select(draft_of(Topology.chain(3), np.zeros(4)), budget)
    assert tree.topology.parents.tolist() == PLAIN.parents.tolist()
    assert tree.tokens.tolist() == [100]


#         0
#      1     2        p: 1 = .6, 2 = .3; under 1: 3 = .9, 4 = .05; under 2: 5 = .99
#    3  4     5
GROWN = Topology.from_parents([-1, 0, 0, 1, 1, 2])
LOGPROBS = np.log([1, 0.6, 0.3, 0.9, 0.05, 0.99])


@pytest.mark.parametrize(
    ("budget", "tokens", "parents"),
    [
        (1, [100], [-1]),
        (2, [100, 101], [-1, 0]),
        (3, [100, 101, 103], [-1, 0, 1]),
        (4, [100, 101, 103, 102], [-1, 0, 1, 0]),
        (5, [100, 101, 103, 102, 105], [-1, 0, 1, 0, 3]),
        (9, [100, 101, 103, 102, 105, 104], [-1, 0, 1, 0, 3, 1]),
    ],
)
def test_dynamic_takes_the_most_probable_paths(budget, tokens, parents):
    tree = DynamicPolicy((2, 3), branching=2).select(draft_of(GROWN, LOGPROBS), budget)
    assert tree.tokens.tolist() == tokens
    assert tree.topology.parents.tolist() == parents


def test_dynamic_asks_for_a_beam_and_keeps_shapes():
    policy = DynamicPolicy((2, 3), branching=4)
    assert policy.shape == Beam((2, 3), 4)
    first = policy.select(draft_of(GROWN, LOGPROBS), 4)
    assert policy.select(draft_of(GROWN, LOGPROBS), 4).topology is first.topology


def test_max_leaves_refuses_a_branch_with_all_that_hangs_below_it():
    tree = DynamicPolicy((2, 3), max_leaves=1).select(draft_of(GROWN, LOGPROBS), 9)
    assert tree.tokens.tolist() == [100, 101, 103]


def test_exponents_tame_a_deep_drafter_that_is_too_sure():
    policy = DynamicPolicy((2, 3), exponents=(1.0, 8.0))  # .9 ** 8 = .43, so .6 * .43 < .3
    assert policy.select(draft_of(GROWN, LOGPROBS), 4).tokens.tolist() == [100, 101, 102, 105]


def test_dynamic_stops_where_more_nodes_do_not_pay():
    stairs = StepCost.single({1: 1.0, 2: 1.0, 3: 1.05, 4: 3.0, 5: 3.0, 6: 3.0})
    tree = DynamicPolicy((2, 3), cost=stairs).select(draft_of(GROWN, LOGPROBS), 6)
    assert tree.num_nodes == 3


def test_dynamic_falls_back_to_plain_where_nothing_pays():
    dear = StepCost.single({1: 1.0, 2: 9.0, 6: 9.0})
    assert DynamicPolicy((2, 3), cost=dear).select(draft_of(GROWN, LOGPROBS), 6).num_nodes == 1
