"""Prepared passes: one read a step, buffers that grow, what is padded and what is told."""

from __future__ import annotations

import gc
from functools import lru_cache
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from device_fakes import prepared
from medusakit.drafters.recycling.drafter import RecyclingDrafter
from medusakit.runtimes.torch.device.packed import PackedScores
from medusakit.runtimes.torch.device.runtime import DeviceRuntime
from medusakit.runtimes.torch.device.step import PATH, Step
from medusakit.runtimes.torch.load import torch_parts
from medusakit.runtimes.torch.scores import TorchScores
from medusakit.tree.topology import Topology, Tree
from medusakit.verify.greedy import GreedyRule
from medusakit.verify.walk import walk
from recorded import Recording

SIZES = dict(vocab_size=97, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4)
PROMPT = [5, 3, 8, 1, 9, 2]
SHAPE = Topology.dense([2, 2, 1])


@lru_cache(maxsize=1)
def llama() -> Any:
    torch.manual_seed(0)
    config = AutoConfig.for_model("llama", **SIZES, num_key_value_heads=2, max_position_embeddings=4096)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(4 if parameter.dim() > 1 else 1)
    return model


def tree(seed: int, shape: Topology = SHAPE) -> Tree:
    return Tree(shape, np.random.default_rng(seed).integers(0, 97, shape.num_nodes))


def begun(runtime: DeviceRuntime, length: int = len(PROMPT)) -> int:
    row = runtime.add_row()
    runtime.prefill(row, (PROMPT * length)[:length])
    return row


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Grows by one number at every read of a step's result, and of a node's scores or state."""
    found: list[int] = []
    own = Step.read
    monkeypatch.setattr(Step, "read", lambda step: found.append(0) or own(step))

    class Counted:
        def __init__(self, tensor: Any) -> None:
            self._tensor = tensor

        def __getitem__(self, node: int) -> Any:
            found.append(1)
            return self._tensor[node]

    made = PackedScores.__init__
    monkeypatch.setattr(
        PackedScores,
        "__init__",
        lambda scores, result, slot, count, logits, hidden: made(
            scores, result, slot, count, Counted(logits), Counted(hidden)
        ),
    )
    return found


def test_a_greedy_step_reads_once(reads: list[int]) -> None:
    """Whatever is accepted: also where the oracle's guesses are right for some depths."""
    runtime = prepared(llama())
    row, ids, root = begun(runtime), list(PROMPT), 7
    for seed in range(6):
        guess = tree(seed)
        guess.tokens[0] = root
        expected, node = prepared_picks(ids + [root], 3), 0
        for depth in range(seed % 3):  # the true path so far, down the last children
            node = SHAPE.children[node][-1]
            guess.tokens[node] = expected[depth]
        del reads[:]
        scores = runtime.forward([(row, guess)])[0]
        path = walk(guess, scores, GreedyRule(), [*ids, root])
        assert path.num_accepted >= seed % 3 and list(path.nodes) == scores.path  # type: ignore[attr-defined]
        runtime.commit(row, path.nodes)
        for kept in path.nodes:
            assert scores.hidden(kept).shape == (32,)
        assert reads == [0]
        ids += [root, *path.token_ids[:-1]]
        root = path.bonus_id


def prepared_picks(ids: list[int], count: int) -> list[int]:
    """Plain greedy decoding by the model's own means."""
    found = list(ids)
    with torch.no_grad():
        for _ in range(count):
            found.append(int(llama()(torch.tensor([found])).logits[0, -1].argmax()))
    return found[len(ids) :]


def test_scores_of_visited_nodes_are_read_one_by_one(reads: list[int]) -> None:
    runtime = prepared(llama())
    scores = runtime.forward([(begun(runtime), tree(1))])[0]
    assert int(scores.logits(2).argmax()) == scores.argmax(2)
    scores.logits(2)
    assert reads == [0, 1]


def test_a_long_path_has_its_later_states_read_when_asked_for() -> None:
    runtime, dynamic = prepared(llama()), torch_parts(llama()).runtime
    root = 7
    chain = Tree(Topology.chain(11), np.array([root, *prepared_picks([*PROMPT, root], 11)]))
    scores = runtime.forward([(begun(runtime), chain)])[0]
    assert len(scores.path) == 12 > PATH  # type: ignore[attr-defined]
    other = dynamic.forward([(begun(dynamic), chain)])[0]  # type: ignore[arg-type]
    for node in (0, PATH - 1, PATH, 11):
        np.testing.assert_allclose(scores.hidden(node), other.hidden(node), atol=1e-4)


def test_buffers_that_grow_are_captured_anew_and_keep_what_they_hold() -> None:
    recording = Recording()
    runtime, other = prepared(llama(), recording, max_rows=2), torch_parts(llama(), max_rows=2).runtime
    rows = [begun(runtime), begun(other)]  # type: ignore[arg-type]
    before = recording.num_captures
    runtime.forward([(rows[0], tree(1))])
    runtime.forward([(rows[0], tree(2))])
    assert recording.num_captures == before + 1
    runtime.prefill(rows[0], PROMPT * 250)  # beyond the first thousand cells
    other.prefill(rows[1], PROMPT * 250)
    found, expected = runtime.forward([(rows[0], tree(3))])[0], other.forward([(rows[1], tree(3))])[0]
    assert recording.num_captures == before + 2
    for node in range(SHAPE.num_nodes):
        np.testing.assert_allclose(found.logits(node), expected.logits(node), atol=1e-4)
    second = begun(runtime)
    runtime.forward([(second, tree(3)), (rows[0], Tree.plain(1))])
    assert recording.num_captures == before + 3


def test_rows_that_take_no_part_keep_what_waits_for_its_commit() -> None:
    runtime, other = prepared(llama(), max_rows=3), torch_parts(llama(), max_rows=3).runtime
    found = []
    for one in (runtime, other):
        rows = [begun(one, 5 + index) for index in range(3)]  # type: ignore[arg-type]
        one.forward([(rows[1], tree(1))])
        one.forward([(rows[2], tree(2)), (rows[0], Tree.plain(3))])
        one.commit(rows[1], [0, 2, 5])
        one.commit(rows[2], [0, 1])
        found.append([scores.logits(0).copy() for scores in one.forward([(row, Tree.plain(9)) for row in rows])])
    for ours, expected in zip(*found, strict=True):
        np.testing.assert_allclose(ours, expected, atol=1e-4)


def test_a_tree_of_more_than_64_nodes_runs_as_before() -> None:
    runtime, other = prepared(llama()), torch_parts(llama()).runtime
    wide = tree(0, Topology.dense([8, 8]))
    found, expected = (one.forward([(begun(one), wide)])[0] for one in (runtime, other))  # type: ignore[arg-type]
    assert isinstance(found, TorchScores) and found.num_nodes == 73
    for node in (0, 8, 72):
        np.testing.assert_allclose(found.logits(node), expected.logits(node), atol=1e-4)


def test_a_model_that_cannot_be_captured_says_so_and_runs() -> None:
    def refused(work: object) -> Any:
        raise RuntimeError("operation not permitted when stream is capturing\nmore")

    runtime, other = prepared(llama(), refused), prepared(llama())
    found, expected = (one.forward([(begun(one), tree(4))])[0].logits(3) for one in (runtime, other))
    np.testing.assert_array_equal(found, expected)
    assert "cannot be captured" in runtime.capabilities.eager and "more" not in runtime.capabilities.eager
    assert other.capabilities.eager == ""


def test_filling_a_row_prepares_what_will_be_timed() -> None:
    recording = Recording()
    runtime = prepared(llama(), recording)
    runtime.drop_row(begun(runtime))
    row = runtime.add_row()
    runtime.fill(row, 256)
    assert runtime.length(row) == 256
    captured = recording.num_captures
    for nodes in (1, 3, 8, 13, 32, 64):
        runtime.forward([(row, tree(0, Topology.chain(nodes - 1)))])
    assert recording.num_captures == captured > 0


def test_long_texts_give_their_memory_back_when_no_row_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("medusakit.runtimes.torch.device.runtime.KEPT_CELLS", 2048)
    runtime, expected = prepared(llama(), Recording()), prepared(llama(), Recording())
    sizes = []
    for length in (1500, 2100):  # within what is kept, and beyond
        row = begun(runtime, length)
        runtime.forward([(row, tree(1))])
        runtime.drop_row(row)
        sizes.append(runtime._cache.num_bytes)
    row = runtime.add_row()
    runtime.fill(row, 1500)  # for timing alone, nothing so long is kept
    runtime.drop_row(row)
    assert sizes[0] > 0 == sizes[1] == runtime._cache.num_bytes
    pair = [one.forward([(begun(one), tree(3))])[0] for one in (runtime, expected)]
    np.testing.assert_array_equal(pair[0].logits(4), pair[1].logits(4))


def test_recycling_learns_from_ranks_what_it_learns_from_scores() -> None:
    runtime, dynamic = prepared(llama()), torch_parts(llama()).runtime
    tables = []
    for one in (runtime, dynamic):
        drafter = RecyclingDrafter(97)
        row = begun(one)  # type: ignore[arg-type]
        drafter.read_step(row, tree(2), [0, 2], one.forward([(row, tree(2))])[0])
        tables.append(drafter._table)
    for token in set(tree(2).tokens.tolist()):
        ours, theirs = (table.guesses(token, 8) for table in tables)
        assert [guess.token for guess in ours] == [guess.token for guess in theirs] and len(ours) == 8
        assert [guess.probability for guess in ours] == pytest.approx([guess.probability for guess in theirs], abs=1e-4)


class Doubler:
    """A reader: twice the root's id, and where the path's end lies on the first axis."""

    width = 2

    def __call__(self, hidden: Any, root_ids: Any) -> Any:
        return torch.stack([2 * root_ids, hidden[:, 0].float().view(torch.int32)], 1)


@pytest.mark.parametrize("capture", [None, Recording()])
def test_what_a_reader_says_comes_with_the_step(capture: Any) -> None:
    runtime, reader = prepared(llama(), capture, max_rows=2), Doubler()
    rows = [begun(runtime), begun(runtime, 9)]
    assert runtime.attach(reader) and runtime.attach(reader)
    for seed in range(3):
        guesses = [tree(seed), tree(seed + 9)]
        for row, guess, scores in zip(
            rows, guesses, runtime.forward(list(zip(rows, guesses, strict=True))), strict=True
        ):
            told, path = runtime.told(row), walk(guess, scores, GreedyRule(), [0])
            assert told is not None and told.ids == path.token_ids
            assert told.start == runtime.length(row) + 1
            assert told.numbers[0] == 2 * path.bonus_id
            assert told.numbers[1:].view(np.float32)[0] == pytest.approx(scores.hidden(path.nodes[-1])[0])
            runtime.commit(row, path.nodes)
    runtime.forward([(rows[0], Tree.plain(1))])  # plain decoding: nobody is asked
    assert runtime.told(rows[0]) is None


def test_one_reader_at_a_time_and_the_next_when_it_has_gone() -> None:
    runtime, first, second = prepared(llama(), Recording()), Doubler(), Doubler()
    row = begun(runtime)
    assert runtime.attach(first) and not runtime.attach(second)
    runtime.forward([(row, tree(1))])
    del first
    gc.collect()
    runtime.forward([(row, tree(1))])
    assert runtime.told(row) is None
    assert runtime.attach(second)
    runtime.forward([(row, tree(1))])
    assert runtime.told(row) is not None
