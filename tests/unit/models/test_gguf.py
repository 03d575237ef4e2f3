"""GGUF files: container, specs, refusals, formats."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from gguf import GGMLQuantizationType, GGUFWriter
from gguf.quants import dequantize, quantize
from numpy.typing import NDArray

from medusakit.errors import ModelError, UnsupportedModelError
from medusakit.models.dequant import BLOCKS
from medusakit.models.gguf import GgufSource
from medusakit.models.gguf_file import GgufFile
from tiny import close_writer, config, gguf_tensors, gguf_writer, weights, write_gguf


def rewrite(
    path: Path, variant: str, extra: dict[str, NDArray[np.float32]] | None = None, drop: str = ""
) -> GGUFWriter:
    """A writer holding the variant's tensors, changed; the caller adds keys and closes it."""
    cfg = config(variant)
    writer = gguf_writer(path, cfg)
    for name, values in (gguf_tensors(cfg, weights(cfg)) | (extra or {})).items():
        if name != drop:
            writer.add_tensor(name, values)
    return writer


def test_metadata_of_every_kind(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    writer = GGUFWriter(str(path), "llama")
    writer.add_uint8("a.u8", 200)
    writer.add_int16("a.i16", -5)
    writer.add_uint64("a.u64", 1 << 40)
    writer.add_float64("a.f64", 0.1)
    writer.add_bool("a.bool", True)
    writer.add_string("a.text", "héllo")
    writer.add_array("a.words", ["x", "", "日本"])
    writer.add_array("a.numbers", [1, 2, 3])
    writer.add_array("a.flags", [True, False])
    close_writer(writer)
    metadata = GgufFile(path).metadata
    expected = {
        "u8": 200,
        "i16": -5,
        "u64": 1 << 40,
        "f64": 0.1,
        "bool": True,
        "text": "héllo",
        "words": ["x", "", "日本"],
    }
    assert {key: metadata[f"a.{key}"] for key in expected} == expected
    numbers, flags = metadata["a.numbers"], metadata["a.flags"]
    assert isinstance(numbers, np.ndarray) and numbers.tolist() == [1, 2, 3]
    assert isinstance(flags, np.ndarray) and flags.tolist() == [True, False]


def test_alignment_key_is_honoured(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    writer = GGUFWriter(str(path), "llama")
    writer.add_custom_alignment(256)
    for name in "ab":
        writer.add_tensor(name, np.full((3, 5), ord(name), np.float32))
    close_writer(writer)
    file = GgufFile(path)
    assert file.tensors["b"].offset % 256 == 0
    assert (file.tensor("b").f32() == ord("b")).all()


@pytest.mark.parametrize("format", ["f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "q5_0", "q5_1"])
def test_row_order_of_q_and_k_survives_every_stored_type(format: str, tmp_path: Path) -> None:
    source = GgufSource(write_gguf(tmp_path / "m.gguf", "llama", format=format))
    cfg = config("llama")
    for key in ("q", "k"):
        values = weights(cfg)[f"model.layers.1.self_attn.{key}_proj.weight"]
        kind = GGMLQuantizationType[format.upper()]
        expected = values if format == "f32" else dequantize(quantize(values, kind), kind)
        stored = source.tensor(f"layers.1.{key}")
        assert stored.format == format
        np.testing.assert_array_equal(stored.f32(), expected)


@pytest.mark.parametrize("format", BLOCKS)
def test_a_whole_model_of_each_block_type_opens(format: str, tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    cfg = config("qwen3", hidden_size=256, intermediate_size=256, num_hidden_layers=1)
    writer = gguf_writer(path, cfg)
    rng = np.random.default_rng(0)
    for name, values in gguf_tensors(cfg, weights(cfg)).items():
        block, size = BLOCKS[format]
        if values.ndim == 1 or values.shape[1] % block:
            writer.add_tensor(name, values)
        else:
            raw = rng.integers(0, 60, (values.shape[0], values.shape[1] // block * size), dtype=np.uint8)
            writer.add_tensor(name, raw, raw_dtype=GGMLQuantizationType[format.upper()])
    close_writer(writer)
    source = GgufSource(path)
    tensor = source.tensor("layers.0.down")
    assert (tensor.format, tensor.shape) == (format, (256, 256))
    np.testing.assert_array_equal(tensor.f32(), dequantize(tensor.raw, GGMLQuantizationType[format.upper()]))


def test_phi3_parts_are_rows_of_the_fused_blocks(tmp_path: Path) -> None:
    source = GgufSource(write_gguf(tmp_path / "m.gguf", "phi3", format="q8_0"))
    fused = weights(config("phi3"))["model.layers.0.self_attn.qkv_proj.weight"]
    kind = GGMLQuantizationType.Q8_0
    parts = [source.tensor(f"layers.0.{key}").f32() for key in "qkv"]
    assert [part.shape for part in parts] == [(64, 64)] * 3
    np.testing.assert_array_equal(np.concatenate(parts), dequantize(quantize(fused, kind), kind))


@pytest.mark.parametrize(
    ("format", "expected"),
    [("f32", "f32"), ("bf16", "f32"), ("q8_0", "int8"), ("q5_1", "int8"), ("q4_0", "int4"), ("q4_1", "int4")],
)
def test_default_weights_follow_the_file(format: str, expected: str, tmp_path: Path) -> None:
    assert GgufSource(write_gguf(tmp_path / "m.gguf", "qwen2", format=format)).default_weights == expected


@pytest.mark.parametrize(
    ("wide", "expected"),
    [
        ({"down": "q8_0"}, "int4"),
        ({"down": "q8_0", "up": "q8_0", "gate": "q8_0"}, "int8"),
        ({"gate": "f16"}, "f32"),
    ],
)
def test_default_weights_of_a_mixed_file_are_what_most_weights_are(
    wide: dict[str, str], expected: str, tmp_path: Path
) -> None:
    path = tmp_path / "m.gguf"
    cfg = config("llama")
    writer = gguf_writer(path, cfg)
    for name, values in gguf_tensors(cfg, weights(cfg)).items():
        part = name.split(".")[-2].removeprefix("ffn_")
        kind = GGMLQuantizationType[wide.get(part, "q4_0").upper()]
        if values.ndim == 1:
            writer.add_tensor(name, values)
        else:
            writer.add_tensor(name, quantize(values, kind), raw_dtype=kind)
    close_writer(writer)
    assert GgufSource(path).default_weights == expected


def test_spec_of_gemma3(tmp_path: Path) -> None:
    spec = GgufSource(write_gguf(tmp_path / "m.gguf", "gemma3", num_hidden_layers=7)).spec
    assert spec.windows == (8, 8, 0, 8, 8, 0, 8)
    assert spec.rope.theta == 1e6 and spec.rope_local is not None and spec.rope_local.theta == 10000.0
    assert spec.embed_scale == 8.0 and spec.sandwich_norms and spec.qk_norm and spec.activation == "gelu_tanh"


def test_gemma3_without_a_pattern_key_has_every_sixth_layer_full(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "m.gguf", "gemma3", num_hidden_layers=7, sliding_window_pattern=None)
    assert GgufSource(path).spec.windows == (8, 8, 8, 8, 8, 0, 8)


def test_a_yarn_factor_of_the_file_multiplies_yarns_own(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    writer = rewrite(path, "llama-yarn")
    writer.add_rope_scaling_attn_factors(0.5)
    close_writer(writer)
    assert GgufSource(path).spec.rope.attention_factor == pytest.approx(0.5 * (1 + 0.1 * np.log(4.0)))


def test_a_head_of_its_own_is_found(tmp_path: Path) -> None:
    source = GgufSource(write_gguf(tmp_path / "m.gguf", "llama-yarn"))
    assert not source.spec.tied_embeddings and "lm_head" in set(source.names())


def test_missing_and_unexpected_tensors_are_listed(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    close_writer(rewrite(path, "llama", {"blk.0.attn_q.bias": np.zeros(64, np.float32)}, drop="blk.2.ffn_up.weight"))
    with pytest.raises(ModelError) as caught:
        GgufSource(path)
    text = str(caught.value)
    assert "missing (1):\n    blk.2.ffn_up.weight [128, 64]" in text
    assert "unexpected (1):\n    blk.0.attn_q.bias" in text


def test_a_wrong_shape_is_named(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    close_writer(rewrite(path, "qwen3", {"blk.1.attn_v.weight": np.zeros((32, 64), np.float32)}))
    with pytest.raises(ModelError, match=r"blk\.1\.attn_v\.weight is \[32, 64\], expected \[64, 64\]"):
        GgufSource(path)


def test_nan_in_weights_is_named_when_the_tensor_is_read(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    bad = np.ones(64, np.float32)
    bad[3] = np.nan
    close_writer(rewrite(path, "llama", {"blk.1.ffn_norm.weight": bad}))
    source = GgufSource(path)
    with pytest.raises(ModelError, match=r"'layers\.1\.ffn_norm' is NaN or infinite"):
        source.tensor("layers.1.ffn_norm")


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("llama.expert_count", 8, "llama.expert_count is 8"),
        ("llama.attention.clamp_kqv", 8, "llama.attention.clamp_kqv is 8"),
        ("llama.final_logit_softcapping", 30, "no such key outside gemma3"),
        ("llama.rope.dimension_count", 8, "all of a head"),
        ("split.count", 3, "one of 3 parts"),
    ],
)
def test_features_that_would_change_the_output_are_refused(
    key: str, value: int, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "m.gguf"
    writer = rewrite(path, "llama")
    writer.kv_data[0].pop(key, None)
    writer.add_uint32(key, value)
    close_writer(writer)
    with pytest.raises(UnsupportedModelError, match=message):
        GgufSource(path)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("llama.block_count", 2**31 - 1, r"block_count is 2147483647, but the file has \d+ tensors"),
        ("llama.rope.freq_base", 0.0, "freq_base is 0, expected a positive number"),
        ("llama.rope.freq_base", float("nan"), "freq_base is nan"),
        ("llama.context_length", float("nan"), "context_length is nan, expected a positive whole number"),
        ("llama.attention.layer_norm_rms_epsilon", -1.0, "epsilon is -1, expected a positive number"),
        ("llama.attention.layer_norm_rms_epsilon", float("inf"), "epsilon is inf"),
    ],
)
def test_numbers_that_no_model_has_are_refused(key: str, value: float, message: str, tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    writer = rewrite(path, "llama")
    writer.kv_data[0].pop(key, None)
    writer.add_uint32(key, value) if isinstance(value, int) else writer.add_float32(key, value)
    close_writer(writer)
    with pytest.raises(ModelError, match=message):
        GgufSource(path)


def test_harmless_values_of_such_keys_pass(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    writer = rewrite(path, "llama")
    writer.add_uint32("llama.expert_count", 0)
    writer.add_bool("llama.attention.causal", True)
    close_writer(writer)
    assert GgufSource(path).spec.family == "llama"


@pytest.mark.parametrize("arch", ["mamba", "gemma2", "qwen3moe"])
def test_other_families_are_refused_with_the_list(arch: str, tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    close_writer(GGUFWriter(str(path), arch))
    with pytest.raises(UnsupportedModelError, match=f"'{arch}'; supported: llama, mistral, qwen2, qwen3, gemma3, phi3"):
        GgufSource(path)


def test_an_adapter_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    writer = GGUFWriter(str(path), "llama")
    writer.add_type("adapter")
    close_writer(writer)
    with pytest.raises(UnsupportedModelError, match="holds a 'adapter', not a model"):
        GgufSource(path)


def test_an_unsupported_tensor_type_is_named(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    writer = GGUFWriter(str(path), "llama")
    writer.add_tensor("x", np.zeros((1, 66), np.uint8), raw_dtype=GGMLQuantizationType.IQ2_XXS)
    close_writer(writer)
    with pytest.raises(UnsupportedModelError, match="'x' has the GGUF type IQ2_XXS; supported: f32, f16"):
        GgufFile(path)


@pytest.mark.parametrize(
    ("content", "config", "hint"),
    [
        (b"# a text file\n", False, "-m with a .gguf file or a Hugging Face folder"),
        (b"# a text file\n", True, "-m {folder}"),
        (b"GGUF" + (3).to_bytes(4, "big"), False, "gguf-convert-endian {folder}"),
        (b"GGUF" + (1).to_bytes(4, "little"), False, "a newer conversion of the model"),
        (b"GGUF" + (4).to_bytes(4, "little"), False, "pip install --upgrade medusakit"),
    ],
)
def test_a_file_that_cannot_be_read_gets_a_hint_that_fits(
    tmp_path: Path, content: bytes, config: bool, hint: str
) -> None:
    path = tmp_path / "model.txt"
    path.write_bytes(content.ljust(64, b"\0"))
    if config:
        (tmp_path / "config.json").write_text("{}")
    with pytest.raises(ModelError) as caught:
        GgufFile(path)
    assert str(caught.value.hint).startswith(hint.format(folder=tmp_path))


def test_a_whole_file_that_does_not_run_is_not_to_be_fetched_again(tmp_path: Path) -> None:
    for key, value, hint in (
        ("general.type", "adapter", "-m with the file of the model that it belongs to"),
        ("llama.rope.scaling.type", "su", "medusa models list   names models that run"),
    ):
        writer = rewrite(tmp_path / "m.gguf", "llama")
        writer.add_string(key, value)
        close_writer(writer)
        with pytest.raises(UnsupportedModelError) as caught:
            GgufSource(tmp_path / "m.gguf")
        assert caught.value.hint == hint
