"""The reference runtime against itself: trees equal plain runs of their paths, rows and KV behave as the seam says."""

import numpy as np
import pytest

from medusakit.errors import ContextLengthError, RuntimeFailure
from medusakit.runtimes.base import Runtime
from medusakit.runtimes.reference import random_reference
from medusakit.tree.topology import Topology, Tree

VOCAB = 32
PROMPT = [3, 1, 4, 1, 5]
SHAPE = Topology.from_rank_paths([(0,), (1,), (0, 0), (1, 0), (0, 1), (0, 0, 0), (1, 0, 0)])
TREE = Tree(SHAPE, np.array([9, 2, 6, 5, 3, 5, 8, 9]))


def started(runtime):
    row = runtime.add_row()
    runtime.prefill(row, PROMPT)
    return row


def plain_logits(runtime, ids):
    row = runtime.add_row()
    logits = runtime.prefill(row, ids).logits(0)
    runtime.drop_row(row)
    return logits


@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float64, 1e-6), (np.float32, 1e-4)])
def test_every_node_equals_a_plain_run_of_its_path(dtype, tolerance):
    runtime = random_reference(0, VOCAB, dtype=dtype)
    assert isinstance(runtime, Runtime)
    scores = runtime.forward([(started(runtime), TREE)])[0]
    for node in range(SHAPE.num_nodes):
        path = [int(TREE.tokens[i]) for i in SHAPE.path(node)]
        expected = plain_logits(runtime, PROMPT + path)
        assert expected.std() > 0.5
        np.testing.assert_allclose(scores.logits(node), expected, atol=tolerance)
        assert scores.argmax(node) == expected.argmax()


def test_a_planted_leak_moves_the_leaking_node_and_its_descendants_only():
    sound, leaky = (random_reference(0, VOCAB, leak=leak) for leak in (None, (2, 1)))
    expected, got = (runtime.forward([(started(runtime), TREE)])[0] for runtime in (sound, leaky))
    moved = [node for node in range(8) if not np.allclose(expected.logits(node), got.logits(node), atol=1e-4)]
    assert moved == [2, 4, 7]


def test_commit_keeps_a_path_and_forgets_the_rest():
    runtime = random_reference(1, VOCAB)
    row = started(runtime)
    runtime.forward([(row, TREE)])
    runtime.commit(row, [0, 2, 4])
    assert runtime.length(row) == len(PROMPT) + 3
    scores = runtime.forward([(row, Tree.plain(7))])[0]
    np.testing.assert_allclose(scores.logits(0), plain_logits(runtime, [*PROMPT, 9, 6, 3, 7]), atol=1e-6)


def test_truncate_goes_back():
    runtime = random_reference(1, VOCAB)
    row = started(runtime)
    runtime.truncate(row, 3)
    assert runtime.length(row) == 3
    again = runtime.prefill(row, PROMPT[3:])
    np.testing.assert_allclose(again.logits(0), plain_logits(runtime, PROMPT), atol=1e-6)


def test_prefill_in_pieces_and_hidden_states_agree():
    runtime = random_reference(2, VOCAB)
    whole, pieces = runtime.add_row(), runtime.add_row()
    states = runtime.hidden_states(whole, PROMPT)
    assert states.shape == (len(PROMPT), runtime.spec.hidden_size)
    for i, token in enumerate(PROMPT):
        scores = runtime.prefill(pieces, [token])
        np.testing.assert_allclose(scores.hidden(0), states[i], atol=1e-6)


def test_rows_are_independent_and_trees_may_be_ragged():
    runtime = random_reference(3, VOCAB)
    first, second = started(runtime), runtime.add_row()
    runtime.prefill(second, [7])  # a one-token prompt
    together = runtime.forward([(first, TREE), (second, Tree.plain(9))])
    np.testing.assert_allclose(together[1].logits(0), plain_logits(runtime, [7, 9]), atol=1e-6)
    runtime.commit(first, [0])
    runtime.drop_row(first)
    assert runtime.rows == (second,)
    assert runtime.add_row() not in (first, second)


def test_the_context_is_filled_to_the_last_position_and_no_further():
    runtime = random_reference(4, VOCAB, context_length=8)
    row = runtime.add_row()
    runtime.prefill(row, [1] * 7)
    runtime.forward([(row, Tree.plain(2))])  # position 7, the eighth
    with pytest.raises(ContextLengthError, match="9 positions are needed, but the context holds 8"):
        runtime.forward([(row, Tree(Topology.chain(1), np.array([2, 3])))])
    with pytest.raises(ContextLengthError, match="holds 8"):
        runtime.prefill(row, [1, 1])


@pytest.mark.parametrize(
    ("misuse", "message"),
    [
        (lambda r, row: r.commit(row, [0]), "no forward pass to commit"),
        (lambda r, row: (r.forward([(row, TREE)]), r.commit(row, [0, 3])), r"\[0, 3\] are not a path"),
        (lambda r, row: (r.forward([(row, TREE)]), r.commit(row, [1])), r"\[1\] are not a path"),
        (lambda r, row: r.forward([(row, TREE), (row, TREE)]), "each row once"),
        (lambda r, row: r.truncate(row, 99), "cannot be cut to 99"),
        (lambda r, row: r.prefill(row, []), "no tokens"),
        (lambda r, row: r.prefill(row, [VOCAB]), f"0 to {VOCAB - 1}"),
        (lambda r, row: r.length(77), "row 77 is not active"),
        (lambda r, row: [r.add_row() for _ in range(9)], "all 8 rows are in use"),
    ],
)
def test_misuse_is_refused_with_its_numbers(misuse, message):
    runtime = random_reference(5, VOCAB)
    with pytest.raises(RuntimeFailure, match=message):
        misuse(runtime, started(runtime))
