"""What every `Runtime` must do, whatever computes it: trees equal plain runs of their paths, in any batch or cache.

Nothing here knows a right answer: a runtime is compared with itself run plainly. tests/parity compares it with others.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from medusakit.errors import ContextLengthError, RuntimeFailure
from medusakit.models.resolve import open_weights, resolve
from medusakit.runtimes.base import Runtime, Scores
from medusakit.runtimes.onnx.runtime import OnnxRuntime, load_onnx
from medusakit.runtimes.reference import ReferenceRuntime
from medusakit.tree.topology import Topology, Tree
from tiny import write_gguf, write_hf

VOCAB, ROWS = 128, 3
PROMPT = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5]
SHAPE = Topology.from_rank_paths([(0,), (1,), (0, 0), (1, 0), (0, 1), (0, 0, 0), (1, 0, 0), (2,)])
TREE = Tree(SHAPE, np.array([9, 2, 6, 5, 3, 5, 8, 9, 7]))

# how far a node may be from a plain run of its path: fp32 rounding, or its growth where activations are quantised
# (random weights amplify it most)
Tolerant = tuple[Runtime, float]
RUNTIMES = [
    "reference",
    "onnx-f32",
    "onnx-f32-window",
    "onnx-int8",
    "onnx-int4",
    "onnx-int4-minima",
    "torch",
    "torch-window",
    "torch-prepared",
    "torch-replayed-window",
]


def _onnx(folder: Path, variant: str, format: str, weights: str) -> Runtime:
    source = open_weights(resolve(str(write_gguf(folder / "m.gguf", variant, seed=1, format=format))))
    return load_onnx(source, weights=weights, threads=1, max_rows=ROWS, cache_dir=folder / "graphs")


def _torch(folder: Path, variant: str) -> Runtime:
    from medusakit.runtimes.torch.load import load_torch

    resolved = resolve(str(write_hf(folder / "m", variant, seed=1)))
    return load_torch(resolved, threads=1, max_rows=ROWS).runtime


def _prepared(folder: Path, variant: str, *, replayed: bool) -> Runtime:
    """The passes of a CUDA device; replayed: what a graph would do."""
    from device_fakes import prepared
    from medusakit.runtimes.torch.load import pretrained
    from recorded import Recording

    model = pretrained(resolve(str(write_hf(folder / "m", variant, seed=1))), threads=1)
    return prepared(model, Recording() if replayed else None, max_rows=ROWS)


def _make(name: str, folder: Path) -> Tolerant:
    makers: dict[str, Callable[[], Tolerant]] = {
        "reference": lambda: (
            ReferenceRuntime(open_weights(resolve(str(write_gguf(folder / "m.gguf", "llama")))), max_rows=ROWS),
            1e-5,
        ),
        "onnx-f32": lambda: (_onnx(folder, "llama", "f32", "f32"), 1e-4),
        "onnx-f32-window": lambda: (_onnx(folder, "gemma3", "f32", "f32"), 1e-4),
        "onnx-int8": lambda: (_onnx(folder, "llama", "q8_0", "int8"), 0.4),
        "onnx-int4": lambda: (_onnx(folder, "llama", "q4_0", "int4"), 0.4),
        "onnx-int4-minima": lambda: (_onnx(folder, "llama", "q4_1", "int4"), 0.4),
        "torch": lambda: (_torch(folder, "llama"), 1e-4),
        "torch-window": lambda: (_torch(folder, "gemma3"), 1e-4),
        "torch-prepared": lambda: (_prepared(folder, "llama", replayed=False), 1e-4),
        "torch-replayed-window": lambda: (_prepared(folder, "gemma3", replayed=True), 1e-4),
    }
    return makers[name]()


@pytest.fixture(scope="module", params=RUNTIMES)
def made(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Tolerant:
    return _make(request.param, tmp_path_factory.mktemp("runtime"))


@pytest.fixture
def runtime(made: Tolerant) -> Runtime:
    for row in made[0].rows:
        made[0].drop_row(row)
    return made[0]


@pytest.fixture
def close(made: Tolerant) -> Callable[[object, object], None]:
    return lambda ours, expected: np.testing.assert_allclose(ours, expected, atol=made[1], rtol=0)  # type: ignore[call-overload, no-any-return]


Close = Callable[[object, object], None]


def started(runtime: Runtime, prompt: list[int] = PROMPT) -> int:
    row = runtime.add_row()
    runtime.prefill(row, prompt)
    return row


def plain(runtime: Runtime, ids: list[int]) -> tuple[np.ndarray, np.ndarray]:
    """(logits, hidden) after `ids`, one position at a time."""
    row = runtime.add_row()
    runtime.prefill(row, ids[:1])
    for token in ids[1:-1]:
        runtime.forward([(row, Tree.plain(token))])
        runtime.commit(row, [0])
    scores = runtime.forward([(row, Tree.plain(ids[-1]))])[0]
    found = scores.logits(0).copy(), scores.hidden(0).copy()
    runtime.drop_row(row)
    return found


def path_ids(tree: Tree, node: int) -> list[int]:
    return [int(tree.tokens[i]) for i in tree.topology.path(node)]


def snapshot(scores: Scores) -> tuple[np.ndarray, np.ndarray]:
    nodes = range(scores.num_nodes)
    return np.array([scores.logits(n) for n in nodes]), np.array([scores.hidden(n) for n in nodes])


def test_it_is_a_runtime(runtime: Runtime) -> None:
    assert isinstance(runtime, Runtime)
    assert runtime.capabilities.max_rows == ROWS
    assert runtime.rows == ()


def test_every_node_equals_a_plain_run_of_its_path(runtime: Runtime, close: Close) -> None:
    logits, hidden = snapshot(runtime.forward([(started(runtime), TREE)])[0])
    assert logits.std() > 0.5
    for node in range(SHAPE.num_nodes):
        expected = plain(runtime, PROMPT + path_ids(TREE, node))
        close(logits[node], expected[0])
        close(hidden[node], expected[1])


def test_a_node_does_not_see_its_siblings(runtime: Runtime) -> None:
    """To the last bit: other tokens at nodes that are no ancestors change nothing."""
    row = started(runtime)
    expected = snapshot(runtime.forward([(row, TREE)])[0])[0]
    for node in range(SHAPE.num_nodes):
        tokens = np.where(SHAPE.ancestors[node], TREE.tokens, (TREE.tokens + 17) % VOCAB)
        found = runtime.forward([(row, Tree(SHAPE, tokens))])[0]
        np.testing.assert_array_equal(found.logits(node), expected[node])


def test_prefill_gives_the_last_position_and_may_come_in_parts(runtime: Runtime, close: Close) -> None:
    expected = plain(runtime, PROMPT)
    row = started(runtime, PROMPT[:4])
    scores = runtime.prefill(row, PROMPT[4:])
    assert scores.num_nodes == 1 and runtime.length(row) == len(PROMPT)
    close(scores.logits(0), expected[0])
    close(scores.hidden(0), expected[1])


def test_hidden_states_are_those_of_every_position(runtime: Runtime, close: Close) -> None:
    row = started(runtime, PROMPT[:3])
    states = runtime.hidden_states(row, PROMPT[3:])
    assert states.shape == (len(PROMPT) - 3, runtime.spec.hidden_size) and runtime.length(row) == len(PROMPT)
    for index in (0, 3, len(states) - 1):
        close(states[index], plain(runtime, PROMPT[: 4 + index])[1])


def test_argmax_is_the_lowest_best_id(runtime: Runtime) -> None:
    scores = runtime.forward([(started(runtime), TREE)])[0]
    assert [scores.argmax(node) for node in range(9)] == [int(scores.logits(node).argmax()) for node in range(9)]
    assert scores.logits(0).shape == (VOCAB,) and scores.logits(0).dtype == np.float32


@pytest.mark.parametrize("kept", [[0], [0, 1], [0, 2, 4, 7], [0, 8]])
def test_commit_keeps_a_path_and_forgets_the_rest(runtime: Runtime, close: Close, kept: list[int]) -> None:
    row = started(runtime)
    runtime.forward([(row, TREE)])
    runtime.commit(row, kept)
    assert runtime.length(row) == len(PROMPT) + len(kept)
    logits, _ = snapshot(runtime.forward([(row, TREE)])[0])
    prefix = PROMPT + path_ids(TREE, kept[-1])
    for node in (0, 4, 6):
        close(logits[node], plain(runtime, prefix + path_ids(TREE, node))[0])


def test_truncate_goes_back(runtime: Runtime, close: Close) -> None:
    row = started(runtime)
    runtime.truncate(row, 4)
    assert runtime.length(row) == 4
    close(runtime.prefill(row, [7, 8]).logits(0), plain(runtime, [*PROMPT[:4], 7, 8])[0])


def test_a_batch_of_ragged_rows_equals_single_rows(runtime: Runtime) -> None:
    """Rows left out of a pass included; but for rounding, which in torch depends on the size of a product."""
    atol = 1e-4 if runtime.capabilities.backend == "torch" else 1e-5
    prompts = [PROMPT, PROMPT[:1], PROMPT[:6]]
    trees = [Tree.plain(7), TREE, Tree(Topology.chain(2), np.array([4, 5, 6]))]
    rows = [started(runtime, prompt) for prompt in prompts]
    alone = [snapshot(runtime.forward([(row, tree)])[0]) for row, tree in zip(rows, trees, strict=True)]
    for members in ([0, 1, 2], [0, 2], [2, 1], [1]):
        batch = runtime.forward([(rows[i], trees[i]) for i in members])
        for index, scores in zip(members, batch, strict=True):
            for found, expected in zip(snapshot(scores), alone[index], strict=True):
                np.testing.assert_allclose(found, expected, atol=atol)


def test_rows_come_and_go(runtime: Runtime, close: Close) -> None:
    first, second, third = (started(runtime, PROMPT[: 5 + i]) for i in range(3))
    runtime.forward([(third, TREE)])
    runtime.drop_row(first)
    runtime.commit(third, [0, 2, 4])  # a pass that is not committed yet survives another row's leaving
    assert sorted(runtime.rows) == sorted([second, third])
    newcomer = started(runtime, PROMPT)
    assert newcomer not in (second, third)
    batch = runtime.forward([(second, Tree.plain(1)), (third, Tree.plain(1)), (newcomer, Tree.plain(1))])
    found = [snapshot(scores)[0][0] for scores in batch]
    for row in runtime.rows:
        runtime.drop_row(row)
    for logits, prefix in zip(found, (PROMPT[:6], PROMPT[:7] + path_ids(TREE, 4), PROMPT), strict=True):
        close(logits, plain(runtime, [*prefix, 1])[0])


def test_a_context_that_grows_keeps_what_it_holds(runtime: Runtime, close: Close) -> None:
    long = (PROMPT * 30)[: runtime.capabilities.max_context - 1]
    row, other = runtime.add_row(), started(runtime)
    for start in range(0, len(long), 50):
        runtime.prefill(row, long[start : start + 50])
    scores = runtime.forward([(row, Tree.plain(7)), (other, Tree.plain(7))])
    found = [snapshot(one)[0][0] for one in scores]
    runtime.drop_row(row)
    close(found[1], plain(runtime, [*PROMPT, 7])[0])
    close(runtime.forward([(other, Tree.plain(7))])[0].logits(0), found[1])
    fresh = runtime.add_row()
    close(found[0], runtime.prefill(fresh, [*long, 7]).logits(0))


def test_the_context_ends(runtime: Runtime) -> None:
    limit = runtime.capabilities.max_context
    row = runtime.add_row()
    with pytest.raises(ContextLengthError, match=str(limit)):
        runtime.prefill(row, [1] * (limit + 1))
    runtime.prefill(row, [1] * (limit - 1))
    with pytest.raises(ContextLengthError, match=str(limit)):
        runtime.forward([(row, TREE)])
    assert runtime.length(row) == limit - 1
    assert runtime.forward([(row, Tree.plain(1))])[0].num_nodes == 1


def test_misuse_is_refused(runtime: Runtime) -> None:
    row = started(runtime)
    for misuse in (
        lambda: runtime.prefill(row, []),
        lambda: runtime.prefill(row, [VOCAB]),
        lambda: runtime.prefill(99, [1]),
        lambda: runtime.truncate(row, len(PROMPT) + 1),
        lambda: runtime.commit(row, [0]),
        lambda: runtime.forward([(row, TREE), (row, TREE)]),
        lambda: [runtime.add_row() for _ in range(ROWS)],
    ):
        with pytest.raises(RuntimeFailure):
            misuse()
    runtime.forward([(row, TREE)])
    with pytest.raises(RuntimeFailure, match="not a path"):
        runtime.commit(row, [0, 3])


@pytest.mark.parametrize("name", ["reference", "onnx-f32"])
def test_rows_that_never_held_anything_can_be_dropped(name: str, tmp_path: Path) -> None:
    fresh = _make(name, tmp_path)[0]
    rows = [fresh.add_row() for _ in range(ROWS)]
    for row in rows:
        fresh.drop_row(row)
    assert fresh.rows == ()


def test_a_filled_row_is_only_for_timing(runtime: Runtime, close: Callable[[object, object], None]) -> None:
    """It holds positions and runs; when it is gone, the next row is as if it had never been."""
    row = runtime.add_row()
    before = runtime.prefill(row, PROMPT).logits(0).copy()
    runtime.drop_row(row)
    filled = runtime.add_row()
    runtime.fill(filled, 30)
    assert runtime.length(filled) == 30
    assert np.isfinite(runtime.forward([(filled, TREE)])[0].logits(0)).all()
    runtime.drop_row(filled)
    close(runtime.prefill(runtime.add_row(), PROMPT).logits(0), before)


def test_a_saved_row_begins_another_to_the_last_bit(runtime: Runtime, close: Close) -> None:
    """Also after the row it was saved from is gone, as often as one likes, and up to any of its positions."""
    row = started(runtime)
    runtime.forward([(row, TREE)])
    runtime.commit(row, [0, 2, 4, 7])
    ids = PROMPT + path_ids(TREE, 7)
    memory = runtime.save(row)
    assert memory.length == len(ids) and memory.num_bytes > 0
    expected = snapshot(runtime.forward([(row, TREE)])[0])
    runtime.drop_row(row)
    for _ in range(2):
        row = runtime.add_row()
        runtime.restore(row, memory, len(ids))
        assert runtime.length(row) == len(ids)
        for found, wanted in zip(snapshot(runtime.forward([(row, TREE)])[0]), expected, strict=True):
            np.testing.assert_array_equal(found, wanted)
        runtime.drop_row(row)
    part = runtime.add_row()
    runtime.restore(part, memory, 5)
    close(runtime.prefill(part, [7, 8]).logits(0), plain(runtime, [*PROMPT[:5], 7, 8])[0])
    with pytest.raises(RuntimeFailure):
        runtime.restore(part, memory, 5)
    runtime.drop_row(part)
    with pytest.raises(RuntimeFailure):
        runtime.restore(runtime.add_row(), memory, len(ids) + 1)


def test_what_freed_memory_holds_changes_nothing(tmp_path: Path) -> None:
    """NaN in every cell that a dropped row had written: a new row of its slot, and the row that moved, see none."""
    runtime = _make("onnx-f32", tmp_path)[0]
    assert isinstance(runtime, OnnxRuntime)
    first, second, third = (started(runtime, ids) for ids in ([*PROMPT, *PROMPT], PROMPT, PROMPT[:6]))
    expected = [snapshot(one)[0] for one in runtime.forward([(second, TREE), (third, TREE)])]
    runtime.truncate(second, len(PROMPT))
    runtime.truncate(third, 6)
    kv = runtime._kv
    for memory in (kv.keys, kv.values):  # what the first row had written beyond what the row that moves there holds
        memory[:, 0, :, :, len(PROMPT) + 9 : 2 * len(PROMPT)] = np.nan
    runtime.drop_row(first)
    for memory in (kv.keys, kv.values):
        memory[:, 2, :, :, : len(PROMPT)] = np.where(memory[:, 2, :, :, : len(PROMPT)], np.nan, 0)
    newcomer = started(runtime, PROMPT[:6])
    batch = runtime.forward([(row, TREE) for row in (second, third, newcomer)])
    for scores, wanted in zip(batch, [*expected, expected[1]], strict=True):
        np.testing.assert_allclose(snapshot(scores)[0], wanted, atol=1e-5)
