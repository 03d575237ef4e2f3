"""The walk on hand-made trees: conformance vectors, provenance, cuts, histories."""

import numpy as np
import pytest

from fakes import scores
from medusakit.settings import SamplingParams
from medusakit.tree.topology import Topology, Tree
from medusakit.verify.base import Verdict
from medusakit.verify.history import PathHistory
from medusakit.verify.rules import make_rule
from medusakit.verify.walk import walk

GREEDY = SamplingParams()
VOCAB = 16


def greedy():
    return make_rule(GREEDY, seed=0, vocab_size=VOCAB)


def one_hot(picks):
    return scores(np.eye(VOCAB)[picks])


def test_dense_2_3_conformance_vector():
    shape = Topology.dense([2, 3])
    assert shape.depths.tolist() == [0, 1, 1, 2, 2, 2, 2, 2, 2]
    leaves = [shape.path(node) for node in range(shape.num_nodes) if not shape.children[node]]
    assert leaves == [[0, 1, 3], [0, 1, 4], [0, 1, 5], [0, 2, 6], [0, 2, 7], [0, 2, 8]]


def test_follows_the_second_branch_and_says_where_tokens_came_from():
    tree = Tree(Topology.dense([2, 3]), np.array([9, 1, 2, 3, 4, 5, 3, 4, 5]))
    picks = [2, 0, 4, 0, 0, 0, 0, 7, 0]
    kept = walk(tree, one_hot(picks), greedy(), [8, 9])
    assert kept.nodes == (0, 2, 7)
    assert kept.token_ids == (2, 4, 7)
    assert (kept.bonus_id, kept.num_accepted, kept.num_visited) == (7, 2, 3)


def test_plain_decoding_is_a_tree_of_one_node():
    kept = walk(Tree.plain(3), one_hot([5]), greedy(), [1, 3])
    assert (kept.nodes, kept.token_ids, kept.num_visited) == ((0,), (5,), 1)


def test_token_zero_at_the_end_of_a_short_path_is_a_bonus_and_not_an_accepted_pad():
    # nodes 1 and 2 under the root; node 3 deepens the other branch, so path 0-1 is short in a padded layout
    tree = Tree(Topology.from_parents([-1, 0, 0, 2]), np.array([9, 4, 5, 6]))
    kept = walk(tree, one_hot([4, 0, 0, 0]), greedy(), [9])
    assert kept.nodes == (0, 1)
    assert kept.token_ids == (4, 0)


def test_drafted_token_zero_is_accepted_like_any_other():
    tree = Tree(Topology.chain(2), np.array([9, 0, 0]))
    kept = walk(tree, one_hot([0, 0, 3]), greedy(), [9])
    assert (kept.nodes, kept.token_ids) == ((0, 1, 2), (0, 0, 3))


def test_end_of_sequence_in_mid_path_keeps_what_leads_to_it():
    eos = 7
    tree = Tree(Topology.chain(3), np.array([9, 4, eos, 5]))
    kept = walk(tree, one_hot([4, eos, 5, 6]), greedy(), [9])
    used = kept.token_ids.index(eos) + 1
    assert kept.token_ids[:used] == (4, eos)
    assert kept.kept(used) == (0, 1, 2)  # node 3 came after the end: not left in the KV
    assert kept.kept(len(kept.token_ids)) == kept.nodes


def test_every_node_is_judged_with_its_own_path():
    seen = {}

    class Recorder:
        name, lossless, path_weight = "recorder", False, 0.0

        def decide(self, scores, node, children, history):
            seen[node] = list(history)
            return Verdict(tuple(child for child, _ in children), 1, tuple(-1.0 for _ in children))

    tree = Tree(Topology.dense([2, 2]), np.array([9, 1, 2, 3, 4, 5, 6]))
    kept = walk(tree, one_hot([0] * 7), Recorder(), [8, 9])
    assert seen == {
        0: [8, 9], 1: [8, 9, 1], 2: [8, 9, 2],
        3: [8, 9, 1, 3], 4: [8, 9, 1, 4], 5: [8, 9, 2, 5], 6: [8, 9, 2, 6],
    }  # fmt: skip
    assert kept.nodes == (0, 1, 3)  # equal in length and weight: the earlier node


def test_equally_long_paths_go_to_the_more_probable():
    class Weighted:
        name, lossless, path_weight = "weighted", False, 0.0

        def decide(self, scores, node, children, history):
            weight = {1: -1.0, 2: -2.0, 3: -3.0, 4: -1.5}
            return Verdict(tuple(c for c, _ in children), 5, tuple(weight[c] for c, _ in children), -0.25)

    tree = Tree(Topology.from_parents([-1, 0, 0, 1, 2]), np.array([9, 1, 2, 3, 4]))
    kept = walk(tree, one_hot([0] * 5), Weighted(), [9])
    assert kept.nodes == (0, 2, 4)
    assert kept.logprobs == (-2.0, -1.5, -0.25)


def test_history_is_a_view():
    view = PathHistory([1, 2, 3], (4, 5))
    assert list(view) == [1, 2, 3, 4, 5]
    assert (len(view), view[-1], view[2], view[1:4], view.index(4)) == (5, 5, 3, [2, 3, 4], 3)
    with pytest.raises(IndexError, match="position 5"):
        view[5]
