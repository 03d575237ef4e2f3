"""What only the CPU runtime does: weight formats and their labels, limits, chunks, views, in-place KV."""

import numpy as np
import pytest

from medusakit.errors import ContextLengthError, RuntimeFailure, UsageError
from medusakit.models.resolve import open_weights, resolve
from medusakit.runtimes.onnx import runtime as runtime_module
from medusakit.runtimes.onnx.runtime import load_onnx
from medusakit.runtimes.onnx.session import make_session
from medusakit.tree.topology import Topology, Tree
from tiny import write_gguf

PROMPT = [3, 1, 4, 1, 5, 9, 2, 6]


def load(tmp_path, variant="llama", format="f32", **options):
    source = open_weights(resolve(str(write_gguf(tmp_path / f"{format}.gguf", variant, seed=1, format=format))))
    return load_onnx(source, threads=1, cache_dir=tmp_path / "graphs", **options)


def logits(runtime, ids=PROMPT):
    return runtime.prefill(runtime.add_row(), ids).logits(0).copy()


@pytest.mark.parametrize(
    ("format", "weights"), [("f32", "f32"), ("bf16", "f32"), ("q8_0", "int8"), ("q4_0", "int4"), ("q4_1", "int4")]
)
def test_the_default_format_follows_the_file_without_rounding_again(tmp_path, format, weights):
    runtime = load(tmp_path, format=format)
    assert runtime.capabilities.weights == weights
    assert runtime.capabilities.exact == "bitwise-ties"
    assert runtime.requantised == ()


@pytest.mark.parametrize("format", ["q8_0", "q4_0", "q4_1", "q5_0", "q5_1"])
@pytest.mark.parametrize("weights", ["int8", "int4"])
def test_stored_integers_give_the_dequantised_models_scores(tmp_path, format, weights):
    """Up to the rounding of activations to 8 bits; where weights are rounded again the runtime says so."""
    expected = logits(load(tmp_path, format=format, weights="f32"))
    runtime = load(tmp_path, format=format, weights=weights)
    four_bit_file = format in ("q4_0", "q4_1")
    assert bool(runtime.requantised) == (four_bit_file != (weights == "int4"))
    error = np.sqrt(((logits(runtime) - expected) ** 2).mean()) / expected.std()
    assert error < (0.5 if weights == "int4" and not four_bit_file else 0.1)


@pytest.mark.parametrize("variant", ["qwen2", "qwen3", "gemma3", "phi3"])
@pytest.mark.parametrize("weights", ["int8", "int4"])
def test_every_family_runs_in_every_format(tmp_path, variant, weights):
    expected = logits(load(tmp_path, variant, weights="f32"))
    runtime = load(tmp_path, variant, format="q4_1", weights=weights)
    reference = logits(load(tmp_path, variant, format="q4_1", weights="f32"))
    assert np.sqrt(((logits(runtime) - reference) ** 2).mean()) < 0.15 * reference.std()
    assert np.abs(reference - expected).max() > 0  # the file really is another one


def test_plain_files_are_rounded_on_request_and_say_so(tmp_path):
    runtime = load(tmp_path, weights="int8")
    assert len(runtime.requantised) == 3 * 7 + 1
    expected = logits(load(tmp_path))
    assert np.sqrt(((logits(runtime) - expected) ** 2).mean()) < 0.1 * expected.std()


def test_unknown_formats_are_refused_with_the_list(tmp_path):
    with pytest.raises(UsageError, match="fp8") as error:
        load(tmp_path, weights="fp8")
    assert "int4" in str(error.value.hint)


@pytest.mark.parametrize("max_context", [0, -3, 257])
def test_a_context_the_model_does_not_have_is_refused(tmp_path, max_context):
    with pytest.raises(UsageError, match="256"):
        load(tmp_path, max_context=max_context)


def test_a_smaller_context_holds(tmp_path):
    runtime = load(tmp_path, max_context=10)
    row = runtime.add_row()
    with pytest.raises(ContextLengthError, match="11"):
        runtime.prefill(row, [1] * 11)
    runtime.prefill(row, [1] * 10)


def test_chunks_do_not_show(tmp_path, monkeypatch):
    runtime = load(tmp_path)
    ids = np.random.default_rng(0).integers(0, 128, 50).tolist()
    whole, states = logits(runtime, ids), load(tmp_path)
    expected = states.hidden_states(states.add_row(), ids)
    monkeypatch.setattr(runtime_module, "_CHUNK", 16)
    chunked = load(tmp_path)
    np.testing.assert_allclose(logits(chunked, ids), whole, atol=1e-4)
    again = load(tmp_path)
    np.testing.assert_allclose(again.hidden_states(again.add_row(), ids), expected, atol=1e-4)


def test_scores_are_views_that_the_next_pass_overwrites(tmp_path):
    runtime = load(tmp_path)
    row = runtime.add_row()
    runtime.prefill(row, PROMPT)
    scores = runtime.forward([(row, Tree(Topology.chain(2), np.array([1, 2, 3])))])[0]
    assert scores.logits(1).base is not None and not scores.logits(1).flags.owndata
    before = scores.logits(0).copy()
    runtime.forward([(row, Tree(Topology.chain(2), np.array([4, 2, 3])))])
    assert not np.array_equal(scores.logits(0), before)


def test_many_shapes_of_pass_do_not_pile_up(tmp_path, monkeypatch):
    monkeypatch.setattr("medusakit.runtimes.onnx.passes._MAX_BINDINGS", 3)
    runtime = load(tmp_path)
    row = runtime.add_row()
    runtime.prefill(row, PROMPT)
    expected = [runtime.forward([(row, Tree.plain(7))])[0].logits(0).copy() for _ in range(2)][0]
    for depth in range(8):
        runtime.forward([(row, Tree(Topology.chain(depth), np.arange(depth + 1)))])
    np.testing.assert_array_equal(runtime.forward([(row, Tree.plain(7))])[0].logits(0), expected)


def test_a_broken_graph_is_a_clear_error():
    with pytest.raises(RuntimeFailure, match="cannot load the graph"):
        make_session(b"not a graph")
