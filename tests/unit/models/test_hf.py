"""Hugging Face folders: files, specs, refusals."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from safetensors.numpy import save_file
from safetensors.torch import save_file as save_torch

from medusakit.errors import ModelError, UnsupportedModelError
from medusakit.models.hf import HfSource
from tiny import config, weights, write_hf

Arrays = dict[str, NDArray[np.float32]]


def write(folder: Path, cfg: dict[str, Any], tensors: Arrays) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(cfg))
    save_file(tensors, str(folder / "model.safetensors"))
    return folder


def write_shards(folder: Path, variant: str) -> dict[str, str]:
    """Two shards and the index; returns the weight map."""
    tensors = weights(config(variant))
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config(variant)))
    names = sorted(tensors)
    halves = {"model-00001-of-00002.safetensors": names[::2], "model-00002-of-00002.safetensors": names[1::2]}
    for file, part in halves.items():
        save_file({name: tensors[name] for name in part}, str(folder / file))
    weight_map = {name: file for file, part in halves.items() for name in part}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
    return weight_map


def test_shards_equal_the_single_file(tmp_path: Path) -> None:
    single = HfSource(write_hf(tmp_path / "a", "qwen2"))
    write_shards(tmp_path / "b", "qwen2")
    sharded = HfSource(tmp_path / "b")
    for name in single.names():
        np.testing.assert_array_equal(sharded.tensor(name).f32(), single.tensor(name).f32())
    assert len(sharded.fingerprint) == 64 and sharded.fingerprint != single.fingerprint


def test_a_missing_shard_is_named(tmp_path: Path) -> None:
    write_shards(tmp_path / "m", "llama")
    (tmp_path / "m" / "model-00002-of-00002.safetensors").unlink()
    with pytest.raises(ModelError, match="lacks 1 of 2 shards: model-00002-of-00002.safetensors\\n  try: hf download"):
        HfSource(tmp_path / "m")


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_kept_as_stored(dtype: torch.dtype, tmp_path: Path) -> None:
    cfg = config("llama")
    tensors = {name: torch.from_numpy(values).to(dtype) for name, values in weights(cfg).items()}
    folder = write(tmp_path / "m", cfg, {})
    save_torch(tensors, str(folder / "model.safetensors"))
    source = HfSource(folder)
    stored = source.tensor("layers.2.down")
    assert stored.format == {torch.bfloat16: "bf16", torch.float16: "f16"}[dtype]
    np.testing.assert_array_equal(stored.f32(), tensors["model.layers.2.mlp.down_proj.weight"].float().numpy())


def test_gemma_norms_get_their_one(tmp_path: Path) -> None:
    source = HfSource(write_hf(tmp_path / "m", "gemma3"))
    stored = weights(config("gemma3"))
    for name, key in {
        "final_norm": "model.norm.weight",
        "layers.0.k_norm": "model.layers.0.self_attn.k_norm.weight",
        "layers.0.post_ffn_norm": "model.layers.0.post_feedforward_layernorm.weight",
    }.items():
        np.testing.assert_array_equal(source.tensor(name).f32(), stored[key] + np.float32(1))


def test_missing_and_extra_tensors_are_listed_by_name(tmp_path: Path) -> None:
    cfg = config("qwen3")
    tensors = weights(cfg)
    del tensors["model.layers.1.self_attn.k_norm.weight"]
    tensors["model.layers.0.mlp.experts.0.weight"] = np.ones((2, 2), np.float32)
    with pytest.raises(ModelError) as caught:
        HfSource(write(tmp_path / "m", cfg, tensors))
    text = str(caught.value)
    assert "missing (1):\n    model.layers.1.self_attn.k_norm.weight [32]" in text
    assert "unexpected (1):\n    model.layers.0.mlp.experts.0.weight" in text


def test_long_differences_are_shortened(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"missing \(29\):[\s\S]*\.\.\. and 21 more"):
        HfSource(write(tmp_path / "m", config("llama"), {"x": np.ones(1, np.float32)}))


def test_tied_copies_and_old_buffers_are_ignored(tmp_path: Path) -> None:
    cfg = config("llama")
    tensors = weights(cfg)
    tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"]
    tensors["model.layers.0.self_attn.rotary_emb.inv_freq"] = np.ones(8, np.float32)
    assert "lm_head" not in set(HfSource(write(tmp_path / "m", cfg, tensors)).names())


def test_nan_is_named(tmp_path: Path) -> None:
    cfg = config("mistral")
    tensors = weights(cfg)
    tensors["model.layers.2.mlp.up_proj.weight"][7, 9] = np.inf
    source = HfSource(write(tmp_path / "m", cfg, tensors))
    with pytest.raises(ModelError, match=r"'layers\.2\.up' is NaN or infinite in row 7, column 9"):
        source.tensor("layers.2.up")


@pytest.mark.parametrize("prefix", [("language_model.model.", "language_model."), ("model.language_model.", "")])
def test_the_text_part_of_a_vision_model_is_read(prefix: tuple[str, str], tmp_path: Path) -> None:
    cfg = config("gemma3")
    body, _ = prefix
    tensors = {body + name.removeprefix("model."): values for name, values in weights(cfg).items()}
    tensors["vision_tower.patch.weight"] = np.ones(3, np.float32)
    outer = {"model_type": "gemma3", "text_config": cfg, "vision_config": {}}
    nested = HfSource(write(tmp_path / "m", outer, tensors))
    plain = HfSource(write_hf(tmp_path / "p", "gemma3"))
    assert nested.spec.windows == plain.spec.windows
    for name in plain.names():
        np.testing.assert_array_equal(nested.tensor(name).f32(), plain.tensor(name).f32())


def test_keys_that_a_config_leaves_out_have_the_familys_defaults(tmp_path: Path) -> None:
    cfg = config("gemma3", num_key_value_heads=4, head_dim=256, num_attention_heads=8, num_hidden_layers=7)
    tensors = weights(cfg)
    for key in (
        "num_key_value_heads", "head_dim", "num_attention_heads", "sliding_window", "sliding_window_pattern",
        "rope_theta", "rope_local_base_freq", "query_pre_attn_scalar", "tie_word_embeddings", "rms_norm_eps",
    ):  # fmt: skip
        del cfg[key]
    spec = HfSource(write(tmp_path / "m", cfg, tensors)).spec
    assert (spec.num_kv_heads, spec.head_dim, spec.num_heads) == (4, 256, 8)
    assert spec.windows == (4096,) * 5 + (0, 4096)
    assert spec.rope.theta == 1e6 and spec.rope_local is not None and spec.rope_local.theta == 1e4
    assert spec.attn_scale == 1 / 16 and spec.norm_eps == 1e-6


def test_gemma3_with_linear_scaling_stretches_only_full_layers(tmp_path: Path) -> None:
    spec = HfSource(write_hf(tmp_path / "m", "gemma3", rope_scaling={"rope_type": "linear", "factor": 8.0})).spec
    assert (spec.rope.scaling, spec.rope.factor) == ("linear", 8.0)
    assert spec.rope_local is not None and spec.rope_local.scaling == "none"


def test_qwen_windows_need_the_switch_and_begin_at_a_layer(tmp_path: Path) -> None:
    off = HfSource(write_hf(tmp_path / "a", "qwen2", sliding_window=16)).spec
    assert off.windows == (0, 0, 0)
    on = HfSource(
        write_hf(tmp_path / "b", "qwen2", sliding_window=16, use_sliding_window=True, max_window_layers=2)
    ).spec
    assert on.windows == (0, 0, 16)


@pytest.mark.parametrize("variant", ["llama-llama3", "gemma3", "phi3-longrope"])
def test_configs_as_transformers_saves_them_give_the_same_spec(variant: str, tmp_path: Path) -> None:
    """transformers 5 writes `rope_parameters` and `layer_types`; hub folders mostly have the older keys."""
    from transformers import AutoConfig

    folder = write_hf(tmp_path / "m", variant)
    old = HfSource(folder).spec
    AutoConfig.from_pretrained(folder).save_pretrained(folder)
    assert "rope_parameters" in json.loads((folder / "config.json").read_text())
    new = HfSource(folder).spec
    assert new == old


@pytest.mark.parametrize(
    ("variant", "key", "value"),
    [
        ("llama", "attention_bias", True),
        ("llama", "mlp_bias", True),
        ("qwen3", "attention_bias", True),
        ("gemma3", "use_bidirectional_attention", True),
        ("gemma3", "attn_logit_softcapping", 50.0),
        ("llama", "hidden_act", "relu"),
        ("llama", "quantization_config", {"quant_method": "gptq"}),
        ("qwen3", "layer_types", ["full_attention", "linear_attention", "full_attention"]),
    ],
)
def test_features_that_would_change_the_output_are_refused(variant: str, key: str, value: Any, tmp_path: Path) -> None:
    overrides = {key: value} | ({"use_sliding_window": True, "sliding_window": 4} if key == "layer_types" else {})
    with pytest.raises(UnsupportedModelError, match=f"{key} is"):
        HfSource(write_hf(tmp_path / "m", variant, **overrides))


def test_other_families_are_refused_with_the_list(tmp_path: Path) -> None:
    cfg = config("llama") | {"model_type": "mixtral"}
    with pytest.raises(UnsupportedModelError, match="'mixtral'; supported: llama, mistral, qwen2, qwen3, gemma3, phi3"):
        HfSource(write(tmp_path / "m", cfg, {}))


def test_integer_weights_are_refused(tmp_path: Path) -> None:
    tensors: dict[str, Any] = weights(config("llama"))
    tensors["model.norm.weight"] = np.ones(64, np.int8)
    source = HfSource(write(tmp_path / "m", config("llama"), tensors))
    with pytest.raises(UnsupportedModelError, match="'model.norm.weight' has the type I8; supported: F32, F16, BF16"):
        source.tensor("final_norm")


@pytest.mark.parametrize("key", ["hidden_size", "num_hidden_layers", "vocab_size", "intermediate_size"])
@pytest.mark.parametrize("value", [None, "64", 0, True])
def test_bad_numbers_are_named(key: str, value: Any, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=f"{key} is {value!r}, expected a positive whole number"):
        HfSource(write(tmp_path / "m", config("llama") | {key: value}, {}))


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("num_hidden_layers", 10**12, "num_hidden_layers is 1000000000000, expected at most"),
        ("rms_norm_eps", "x", "rms_norm_eps is 'x', expected a positive number"),
        ("rms_norm_eps", None, "rms_norm_eps is None"),
        ("rms_norm_eps", float("nan"), "rms_norm_eps is nan"),
        ("rms_norm_eps", 0, "rms_norm_eps is 0"),
        ("model_type", [], r"the family '\[\]'; supported: llama"),
        ("hidden_act", [5], r"hidden_act is \[5\]"),
        ("rope_theta", "x", "rope_theta is 'x', expected a positive number"),
        ("rope_theta", float("nan"), "rope_theta is nan"),
        ("rope_scaling", "x", "the rotary settings are 'x', expected a table"),
        ("rope_parameters", [1], r"the rotary settings are \[1\], expected a table"),
        ("partial_rotary_factor", "x", "partial_rotary_factor is 'x', expected a positive number"),
    ],
)
def test_values_that_no_model_has_are_refused(key: str, value: Any, message: str, tmp_path: Path) -> None:
    folder = write_hf(tmp_path / "m", "llama")
    settings = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(settings | {key: value}))
    with pytest.raises(ModelError, match=message):
        HfSource(folder)


@pytest.mark.parametrize(("key", "value"), [("layer_types", 5), ("layer_types", [[]]), ("query_pre_attn_scalar", "x"),
                                            ("final_logit_softcapping", "x"), ("rope_parameters", 5),
                                            ("rope_parameters", {"full_attention": 5})])  # fmt: skip
def test_values_that_no_gemma3_has_are_refused(key: str, value: Any, tmp_path: Path) -> None:
    folder = write_hf(tmp_path / "m", "gemma3")
    settings = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(settings | {key: value}))
    with pytest.raises(ModelError):
        HfSource(folder)


def test_broken_folders(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"cannot read .*config\.json"):
        HfSource(tmp_path)
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(ModelError, match="is not JSON"):
        HfSource(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps(config("llama")))
    (tmp_path / "pytorch_model.bin").touch()
    with pytest.raises(ModelError, match=r"pytorch_model\.bin is a pickle"):
        HfSource(tmp_path)
