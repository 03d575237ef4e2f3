"""Embedding rows in every stored format, scaled, and ids outside the vocabulary."""

from dataclasses import dataclass, replace

import numpy as np
import pytest

from medusakit.errors import RuntimeFailure
from medusakit.models.resolve import open_weights, resolve
from medusakit.runtimes.onnx.embedding import EmbeddingTable
from tiny import write_gguf


@pytest.mark.parametrize("format", ["f32", "f16", "bf16", "q8_0", "q4_0", "q5_1"])
def test_rows_are_those_of_the_whole_table(tmp_path, format):
    source = open_weights(resolve(str(write_gguf(tmp_path / "m.gguf", "llama", format=format))))
    ids = np.array([0, 127, 5, 5])
    np.testing.assert_array_equal(EmbeddingTable(source).rows(ids), source.tensor("embed").f32()[ids])


@dataclass
class Scaled:
    inner: object

    @property
    def spec(self):
        return replace(self.inner.spec, embed_scale=8.0)

    def tensor(self, name):
        return self.inner.tensor(name)


def test_rows_are_scaled(tmp_path):
    source = open_weights(resolve(str(write_gguf(tmp_path / "m.gguf", "llama"))))
    np.testing.assert_array_equal(
        EmbeddingTable(Scaled(source)).rows(np.array([3])), 8 * source.tensor("embed").f32()[[3]]
    )


@pytest.mark.parametrize("ids", [[128], [-1], [3, 400]])
def test_ids_outside_the_vocabulary_are_refused(tmp_path, ids):
    source = open_weights(resolve(str(write_gguf(tmp_path / "m.gguf", "llama"))))
    with pytest.raises(RuntimeFailure, match="128"):
        EmbeddingTable(source).rows(np.array(ids))
