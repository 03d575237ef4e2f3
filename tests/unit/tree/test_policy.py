"""Policies: prefixes of a static tree, best-first trees of a beam."""

import numpy as np
import pytest

from medusakit.tree.cost import StepCost
from medusakit.tree.policy import DynamicPolicy, StaticPolicy, TreePolicy
from medusakit.tree.topology import PLAIN, Beam, Draft, Topology


def draft_of(topology, logprobs, tokens=None):
    tokens = np.arange(100, 100 + topology.num_nodes) if tokens is None else np.asarray(tokens)
    return Draft(topology, tokens, np.asarray(logprobs, dtype=np.float32))


def choose(policy, draft, room, context=0):
    (tree,) = policy.select([draft], [room], context)
    return tree


def test_static_takes_a_prefix_and_keeps_one_object_per_budget():
    shape = Topology.from_rank_paths([(0,), (1,), (0, 0), (2,)])
    policy = StaticPolicy(shape)
    draft = draft_of(shape, np.zeros(5))
    assert isinstance(policy, TreePolicy)
    assert policy.shape is shape
    assert choose(policy, draft, 5).topology is shape
    assert choose(policy, draft, 99).topology is shape
    small = choose(policy, draft, 3)
    assert small.topology.parents.tolist() == [-1, 0, 0]
    assert small.tokens.tolist() == [100, 101, 102]
    assert choose(policy, draft, 3).topology is small.topology


@pytest.mark.parametrize("budget", [1, 0, -3])
def test_static_budget_of_one_is_plain_decoding(budget):
    policy = StaticPolicy(Topology.chain(3))
    tree = choose(policy, draft_of(Topology.chain(3), np.zeros(4)), budget)
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
    tree = choose(DynamicPolicy(Beam((2, 3), 2)), draft_of(GROWN, LOGPROBS), budget)
    assert tree.tokens.tolist() == tokens
    assert tree.topology.parents.tolist() == parents


def test_dynamic_asks_for_a_beam_and_keeps_shapes():
    policy = DynamicPolicy(Beam((2, 3), 4))
    assert policy.shape == Beam((2, 3), 4)
    first = choose(policy, draft_of(GROWN, LOGPROBS), 4)
    assert choose(policy, draft_of(GROWN, LOGPROBS), 4).topology is first.topology


def test_max_leaves_refuses_a_branch_with_all_that_hangs_below_it():
    tree = choose(DynamicPolicy(Beam((2, 3)), max_leaves=1), draft_of(GROWN, LOGPROBS), 9)
    assert tree.tokens.tolist() == [100, 101, 103]


def test_dynamic_stops_where_more_nodes_do_not_pay():
    stairs = StepCost.single({1: 1.0, 2: 1.0, 3: 1.05, 4: 3.0, 5: 3.0, 6: 3.0})
    tree = choose(DynamicPolicy(Beam((2, 3)), cost=stairs), draft_of(GROWN, LOGPROBS), 6)
    assert tree.num_nodes == 3


def test_dynamic_falls_back_to_plain_where_nothing_pays():
    dear = StepCost.single({1: 1.0, 2: 9.0, 6: 9.0})
    assert choose(DynamicPolicy(Beam((2, 3)), cost=dear), draft_of(GROWN, LOGPROBS), 6).num_nodes == 1


def test_rows_of_a_pass_are_widened_together():
    """One row's second node is worth little, but a pass of two rows is as wide as its widest."""
    cost = StepCost.single({1: 1.0, 2: 1.0, 3: 9.0, 4: 1.3, 6: 9.0, 8: 9.0, 10: 9.0, 12: 9.0})
    sure, unsure = draft_of(GROWN, LOGPROBS), draft_of(GROWN, np.log([1, 0.05, 0.04, 0.9, 0.05, 0.99]))
    trees = DynamicPolicy(Beam((2, 3)), cost=cost).select([sure, unsure], [6, 6], 0)
    assert [tree.num_nodes for tree in trees] == [2, 2]


def test_a_dearer_context_gives_smaller_trees():
    cost = StepCost({256: {n: 1.0 + 0.01 * n for n in range(1, 7)}, 4096: {n: 1.0 + 2.0 * n for n in range(1, 7)}})
    draft = draft_of(GROWN, LOGPROBS)
    sizes = [choose(DynamicPolicy(Beam((2, 3)), cost=cost), draft, 6, context).num_nodes for context in (256, 4096)]
    assert sizes == [6, 1]


def test_easy_steps_get_more_nodes_than_their_own_best_ratio():
    """What a second is worth is set by the usual, hard steps; an easy one may go past the peak of its own ratio."""
    cost = StepCost.single({n: 1.0 + 0.25 * (n - 1) for n in range(1, 7)})
    hard, easy = draft_of(GROWN, np.log([1, 0.05, 0.04, 0.9, 0.05, 0.99])), draft_of(GROWN, LOGPROBS)
    policy = DynamicPolicy(Beam((2, 3)), cost=cost)
    alone = choose(DynamicPolicy(Beam((2, 3)), cost=cost), easy, 6).num_nodes
    for _ in range(100):
        choose(policy, hard, 6)
    assert choose(policy, easy, 6).num_nodes > alone
