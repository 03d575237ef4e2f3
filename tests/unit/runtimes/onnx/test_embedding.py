"""The embedding lookup gives the file's own values, in every stored format."""

from dataclasses import replace

import numpy as np
import onnxruntime
import pytest

from medusakit.models.dequant import BLOCKS
from medusakit.models.spec import StoredTensor
from medusakit.runtimes.onnx.embedding import emit_embedding
from medusakit.runtimes.onnx.graph import GRAPH_FILE, GraphWriter
from medusakit.runtimes.reference_source import random_source
from quantised import random_blocks

IDS = np.array([0, 4, 2, 2])


class Source:
    """A table of five tokens in some format."""

    def __init__(self, table, scale=1.0):
        self.table = table
        self.spec = replace(random_source(0, 5).spec, hidden_size=table.shape[1], embed_scale=scale)

    def tensor(self, name):
        assert name == "embed"
        return self.table


def table(format):
    rng = np.random.default_rng(0)
    if format in ("f32", "f16"):
        values = rng.normal(size=(5, 64)).astype({"f32": np.float32, "f16": np.float16}[format])
        return StoredTensor("embed", format, (5, 64), values)
    if format == "bf16":
        return StoredTensor("embed", format, (5, 64), rng.integers(0x3000, 0x4000, (5, 64)).astype(np.uint16))
    return random_blocks(format, name="embed", columns=2)


def looked_up(source, folder):
    with GraphWriter(folder) as graph:
        graph.output(emit_embedding(source, graph, graph.input("ids", np.int64, ["t"])), np.float32, ["t", "d"])
        graph.save()
    session = onnxruntime.InferenceSession(str(folder / GRAPH_FILE), providers=["CPUExecutionProvider"])
    return session.run(None, {"ids": IDS})[0]


@pytest.mark.parametrize("format", ["f32", "f16", "bf16", *BLOCKS])
def test_rows_are_the_stored_ones(tmp_path, format):
    source = Source(table(format))
    np.testing.assert_array_equal(looked_up(source, tmp_path), source.table.f32()[IDS])


def test_rows_are_scaled(tmp_path):
    source = Source(table("q8_0"), scale=8.0)
    np.testing.assert_array_equal(looked_up(source, tmp_path), 8 * source.table.f32()[IDS])
