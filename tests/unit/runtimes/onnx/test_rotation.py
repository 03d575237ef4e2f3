"""A rotated model is the same function, and its activations have no outliers."""

import numpy as np
import pytest

from medusakit.models.resolve import open_weights, resolve
from medusakit.runtimes.onnx import linears
from medusakit.runtimes.onnx.rotation import RotatedSource, hadamard, orthogonal
from medusakit.runtimes.onnx.runtime import load_onnx
from tiny import write_gguf


class Exact:
    """Stands in for the 8-bit products: the same graph around them, in float32."""

    def __init__(self, graph):
        self._graph = graph

    def emit(self, x, name, values, rows):
        return self._graph.node("MatMul", [x, self._graph.weight(f"{name}.weight", values.T)], f"{name}.product")

    def emit_normed(self, x, name, values):
        return self.emit(x, name, values, "ids")


@pytest.mark.parametrize("variant", ["llama", "qwen2", "qwen3", "gemma3", "phi3"])
def test_rotating_changes_no_score_and_no_hidden_state(tmp_path, monkeypatch, variant):
    source = open_weights(resolve(str(write_gguf(tmp_path / "model.gguf", variant, seed=2, format="f32"))))
    plain = load_onnx(source, weights="f32", threads=1, max_rows=2, cache_dir=tmp_path / "plain")
    monkeypatch.setattr(linears, "IntegerWriter", Exact)
    rotated = load_onnx(source, weights="int8", threads=1, max_rows=2, cache_dir=tmp_path / "rotated")
    ids = np.random.default_rng(0).integers(0, 128, 20).tolist()
    for ask in ("prefill", "hidden_states"):
        expected, found = (getattr(runtime, ask)(runtime.add_row(), ids) for runtime in (plain, rotated))
        if ask == "prefill":
            expected, found = expected.logits(0), found.logits(0)
        np.testing.assert_allclose(found, expected, atol=2e-4 * np.abs(expected).max())


@pytest.mark.parametrize("size", [1, 3, 24, 64, 576])
def test_rotations_are_orthogonal_and_repeatable(size):
    turn = orthogonal(size).astype(np.float64)
    np.testing.assert_allclose(turn @ turn.T, np.eye(size), atol=1e-6)
    np.testing.assert_array_equal(orthogonal(size), turn.astype(np.float32))


def test_an_outlier_is_spread_over_all_dimensions():
    x = np.zeros(576, np.float32)
    x[7] = 100
    assert np.abs(x @ orthogonal(576)).max() < 15
    assert np.abs(x[:64] @ hadamard(64)).max() < 12.6


def test_tied_embeddings_become_a_lookup_as_stored_and_a_rotated_head(tmp_path):
    source = open_weights(resolve(str(write_gguf(tmp_path / "model.gguf", "llama", seed=2, format="q4_0"))))
    rotated = RotatedSource(source)
    assert source.spec.tied_embeddings and not rotated.spec.tied_embeddings
    assert rotated.tensor("embed").format == source.tensor("embed").format
    head = (source.tensor("embed").f32() * source.tensor("final_norm").f32()) @ rotated.turn
    np.testing.assert_array_equal(rotated.tensor("lm_head").f32(), head)
    assert np.all(rotated.tensor("final_norm").f32() == 1)
