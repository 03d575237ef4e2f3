"""A node's scores have the bits that plain decoding of its path gives: any tree, batch, weight format, cache state.

What makes exact decoding exact for formats that quantise activations, which amplify a last bit to whole units.
"""

from dataclasses import replace

import numpy as np
import pytest

from medusakit.models.resolve import open_weights, resolve
from medusakit.runtimes.onnx.runtime import load_onnx
from medusakit.tree.topology import Topology, Tree
from tiny import write_gguf

TREE = Topology.from_parents([-1, 0, 0, 1, 0, 2, 1, 5, 5, 3, 7])
FORMATS = [("f32", "f32"), ("q8_0", "int8"), ("q4_0", "int4"), ("q4_1", "int4")]


def load(tmp_path, variant, format, weights, **options):
    path = write_gguf(tmp_path / f"{variant}-{format}.gguf", variant, seed=3, format=format)
    source = open_weights(resolve(str(path)))
    return load_onnx(source, weights=weights, threads=2, cache_dir=tmp_path / "graphs", **options)


def plain_rows(runtime, prompt, path):
    """Logits after every token of the path, decoded one at a time."""
    row, rows = runtime.add_row(), []
    runtime.prefill(row, prompt)
    for token in path:
        rows.append(runtime.forward([(row, Tree.plain(int(token)))])[0].logits(0).copy())
        runtime.commit(row, [0])
    runtime.drop_row(row)
    return rows


@pytest.mark.parametrize(("format", "weights"), FORMATS)
@pytest.mark.parametrize("variant", ["llama", "qwen3", "gemma3", "phi3"])
def test_every_node_equals_plain_decoding_of_its_path(tmp_path, variant, format, weights):
    runtime = load(tmp_path, variant, format, weights)
    random = np.random.default_rng(0)
    prompt, tokens = random.integers(0, 128, 37).tolist(), random.integers(0, 128, TREE.num_nodes)
    row = runtime.add_row()
    runtime.prefill(row, prompt)
    scores = runtime.forward([(row, Tree(TREE, tokens))])[0]
    found = [scores.logits(node).copy() for node in range(TREE.num_nodes)]
    path = TREE.path(10)
    runtime.commit(row, path)
    after = runtime.forward([(row, Tree.plain(5))])[0].logits(0).copy()
    runtime.drop_row(row)
    for leaf in (4, 6, 8, 9, 10):
        nodes = TREE.path(leaf)
        for node, expected in zip(nodes, plain_rows(runtime, prompt, tokens[nodes]), strict=True):
            np.testing.assert_array_equal(found[node], expected)
    np.testing.assert_array_equal(after, plain_rows(runtime, prompt, [*tokens[path], 5])[-1])


@pytest.mark.parametrize(("format", "weights"), [("f32", "f32"), ("q4_1", "int4")])
def test_rows_do_not_depend_on_their_companions(tmp_path, format, weights):
    runtime = load(tmp_path, "llama", format, weights, max_rows=3)
    random = np.random.default_rng(1)
    prompts = [random.integers(0, 128, size).tolist() for size in (5, 61, 23)]
    trees = [Tree(TREE, random.integers(0, 128, TREE.num_nodes)), Tree.plain(9), Tree(Topology.chain(3), np.arange(4))]
    rows = [runtime.add_row() for _ in prompts]
    for row, prompt in zip(rows, prompts, strict=True):
        runtime.prefill(row, prompt)
    together = [
        [scores.logits(node).copy() for node in range(scores.num_nodes)]
        for scores in runtime.forward(list(zip(rows, trees, strict=True)))
    ]
    for row, tree, expected in zip(rows, trees, together, strict=True):
        alone = runtime.forward([(row, tree)])[0]
        for node in range(tree.num_nodes):
            np.testing.assert_array_equal(alone.logits(node), expected[node])


class LongContext:
    """The tiny model, whose rotary embedding knows no end, with room for more than one block of cells."""

    def __init__(self, source):
        self._source = source
        self.spec = replace(source.spec, context_length=4096)

    def __getattr__(self, name):
        return getattr(self._source, name)


@pytest.mark.parametrize("length", [889, 894])
def test_trees_across_a_block_of_cells_keep_their_bits(tmp_path, length):
    path = write_gguf(tmp_path / "q8.gguf", "llama", seed=3, format="q8_0")
    runtime = load_onnx(LongContext(open_weights(resolve(str(path)))), threads=2, cache_dir=tmp_path / "graphs")
    random = np.random.default_rng(2)
    prompt, tokens = random.integers(0, 128, length).tolist(), random.integers(0, 128, TREE.num_nodes)
    row = runtime.add_row()
    runtime.prefill(row, prompt)
    scores = runtime.forward([(row, Tree(TREE, tokens))])[0]
    found = [scores.logits(node).copy() for node in range(TREE.num_nodes)]
    runtime.drop_row(row)
    for leaf in (8, 10):
        nodes = TREE.path(leaf)
        for node, expected in zip(nodes, plain_rows(runtime, prompt, tokens[nodes]), strict=True):
            np.testing.assert_array_equal(found[node], expected)
