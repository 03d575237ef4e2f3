"""Tiny random models for tests, one per family, as Hugging Face folders and as GGUF files. No torch, no transformers.

    folder = write_hf(tmp_path / "m", "qwen3", seed=3)                # config.json + model.safetensors
    file = write_gguf(tmp_path / "m.gguf", "qwen3", format="q8_0")     # the same weights as llama.cpp stores them
    config("llama", num_hidden_layers=1)                               # a config.json as a dict; overrides go on top

VARIANTS lists every name: a family, or "family-feature". `weights(config, seed)` gives arrays by transformers' names.
Vocabulary 128, hidden 64, 3 layers, 4 query and 2 KV heads, context 256. The GGUF writer follows llama.cpp's converter.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGMLQuantizationType, GGUFWriter
from gguf.quants import quantize
from numpy.typing import NDArray
from safetensors.numpy import save_file

Array = NDArray[np.float32]
Config = dict[str, Any]

_BASE: Config = {
    "vocab_size": 128, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 3, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 256, "rms_norm_eps": 1e-6, "tie_word_embeddings": False,
    "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0, "dtype": "float32",
}  # fmt: skip

_SHORT = [1.0 + 0.05 * i for i in range(4)]
_LONG = [2.0 + 0.5 * i for i in range(4)]

VARIANTS: dict[str, Config] = {
    "llama": {"model_type": "llama", "rope_theta": 10000.0, "tie_word_embeddings": True},
    "llama-linear": {"model_type": "llama", "rope_scaling": {"rope_type": "linear", "factor": 4.0}},
    "llama-llama3": {
        "model_type": "llama",
        "rope_theta": 500000.0,
        "head_dim": 32,
        "rope_scaling": {
            "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
            "original_max_position_embeddings": 64,
        },
    },
    "llama-yarn": {
        "model_type": "llama",
        "rope_scaling": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64},
    },
    "mistral": {"model_type": "mistral", "sliding_window": 8},
    "qwen2": {"model_type": "qwen2", "rope_theta": 1e6, "tie_word_embeddings": True},
    "qwen3": {"model_type": "qwen3", "head_dim": 32, "rope_theta": 1e6},
    "gemma3": {
        "model_type": "gemma3_text", "head_dim": 32, "sliding_window": 8, "sliding_window_pattern": 3,
        "query_pre_attn_scalar": 32, "rope_theta": 1e6, "rope_local_base_freq": 10000.0, "num_key_value_heads": 1,
        "tie_word_embeddings": True, "hidden_activation": "gelu_pytorch_tanh",
    },
    "phi3": {"model_type": "phi3", "sliding_window": 9, "num_key_value_heads": 4},
    "phi3-longrope": {
        "model_type": "phi3", "partial_rotary_factor": 0.5, "original_max_position_embeddings": 32,
        "sliding_window": None,
        "rope_scaling": {"type": "longrope", "short_factor": _SHORT, "long_factor": _LONG},
    },
}  # fmt: skip
_CLASSES = {
    "llama": "Llama", "mistral": "Mistral", "qwen2": "Qwen2", "qwen3": "Qwen3", "gemma3_text": "Gemma3", "phi3": "Phi3",
}  # fmt: skip


def config(variant: str, **overrides: Any) -> Config:
    """The config.json of a variant."""
    merged = _BASE | VARIANTS[variant] | overrides
    return merged | {"architectures": [f"{_CLASSES[merged['model_type']]}ForCausalLM"]}


def head_dim(cfg: Config) -> int:
    return int(cfg.get("head_dim") or cfg["hidden_size"] // cfg["num_attention_heads"])


def weights(cfg: Config, seed: int = 0) -> dict[str, Array]:
    """Random weights by their transformers names, scaled so that logits are of order one and attention is not flat."""
    rng = np.random.default_rng(seed)
    return {name: _draw(rng, name, shape) for name, shape in _shapes(cfg).items()}


def _draw(rng: np.random.Generator, name: str, shape: tuple[int, ...]) -> Array:
    if len(shape) == 1:
        spread = rng.standard_normal(shape) * 0.1
        return (spread if name.endswith("bias") else 1.0 + spread).astype(np.float32)
    scale = 0.5 if "embed" in name else 1.5 / math.sqrt(shape[1])
    return (rng.standard_normal(shape) * scale).astype(np.float32)


def _shapes(cfg: Config) -> dict[str, tuple[int, ...]]:
    hidden, ffn, kind = cfg["hidden_size"], cfg["intermediate_size"], cfg["model_type"]
    q, kv = cfg["num_attention_heads"] * head_dim(cfg), cfg["num_key_value_heads"] * head_dim(cfg)
    shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (cfg["vocab_size"], hidden)}
    for index in range(cfg["num_hidden_layers"]):
        layer: dict[str, tuple[int, ...]] = {
            "input_layernorm.weight": (hidden,),
            "self_attn.o_proj.weight": (hidden, q),
        }
        if kind == "phi3":
            layer |= {"self_attn.qkv_proj.weight": (q + 2 * kv, hidden), "mlp.gate_up_proj.weight": (2 * ffn, hidden)}
        else:
            layer |= {
                f"self_attn.{name}_proj.weight": (rows, hidden) for name, rows in (("q", q), ("k", kv), ("v", kv))
            }
            layer |= {f"mlp.{name}_proj.weight": (ffn, hidden) for name in ("gate", "up")}
        if kind == "qwen2":
            layer |= {f"self_attn.{name}_proj.bias": (rows,) for name, rows in (("q", q), ("k", kv), ("v", kv))}
        if kind in ("qwen3", "gemma3_text"):
            layer |= {f"self_attn.{name}_norm.weight": (head_dim(cfg),) for name in "qk"}
        if kind == "gemma3_text":
            layer |= {f"{name}_feedforward_layernorm.weight": (hidden,) for name in ("pre", "post")}
        layer |= {"post_attention_layernorm.weight": (hidden,), "mlp.down_proj.weight": (hidden, ffn)}
        shapes |= {f"model.layers.{index}.{name}": shape for name, shape in layer.items()}
    shapes["model.norm.weight"] = (hidden,)
    if not cfg["tie_word_embeddings"]:
        shapes["lm_head.weight"] = (cfg["vocab_size"], hidden)
    return shapes


def write_hf(folder: Path, variant: str, *, seed: int = 0, **overrides: Any) -> Path:
    """A Hugging Face folder: config.json and model.safetensors in float32."""
    cfg = config(variant, **overrides)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(cfg))
    save_file(weights(cfg, seed), str(folder / "model.safetensors"), metadata={"format": "pt"})
    return folder


def write_gguf(path: Path, variant: str, *, seed: int = 0, format: str = "f32", **overrides: Any) -> Path:
    """A GGUF file with the weights of `write_hf`. `format` (f32, f16, bf16, q8_0, q4_0, ...): of the matrices."""
    cfg = config(variant, **overrides)
    writer = gguf_writer(path, cfg)
    kind = GGMLQuantizationType[format.upper()]
    for name, values in gguf_tensors(cfg, weights(cfg, seed)).items():
        if values.ndim == 1 or format == "f32":
            writer.add_tensor(name, values)
        else:
            writer.add_tensor(name, quantize(values, kind), raw_dtype=kind)
    close_writer(writer)
    return path


def close_writer(writer: GGUFWriter) -> None:
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def gguf_writer(path: Path, cfg: Config) -> GGUFWriter:
    """A writer with the metadata of the model and no tensors yet."""
    arch = {"mistral": "llama", "gemma3_text": "gemma3"}.get(cfg["model_type"], cfg["model_type"])
    writer = GGUFWriter(str(path), arch)
    writer.add_name("tiny")
    writer.add_block_count(cfg["num_hidden_layers"])
    writer.add_context_length(cfg["max_position_embeddings"])
    writer.add_embedding_length(cfg["hidden_size"])
    writer.add_feed_forward_length(cfg["intermediate_size"])
    writer.add_head_count(cfg["num_attention_heads"])
    writer.add_head_count_kv(cfg["num_key_value_heads"])
    writer.add_layer_norm_rms_eps(cfg["rms_norm_eps"])
    if arch in ("qwen3", "gemma3") or cfg.get("head_dim"):
        writer.add_key_length(head_dim(cfg))
        writer.add_value_length(head_dim(cfg))
    writer.add_rope_freq_base(cfg.get("rope_theta", 10000.0))
    if cfg.get("sliding_window"):
        writer.add_sliding_window(cfg["sliding_window"])
    if cfg.get("sliding_window_pattern"):
        writer.add_uint32(f"{arch}.attention.sliding_window_pattern", cfg["sliding_window_pattern"])
    _add_rope(writer, cfg)
    return writer


def _add_rope(writer: GGUFWriter, cfg: Config) -> None:
    from gguf import RopeScalingType

    writer.add_rope_dimension_count(int(head_dim(cfg) * cfg.get("partial_rotary_factor", 1.0)))
    scaling = cfg.get("rope_scaling") or {}
    kind = scaling.get("rope_type", scaling.get("type"))
    if kind in ("linear", "yarn"):
        writer.add_rope_scaling_type(RopeScalingType(kind))
        writer.add_rope_scaling_factor(scaling["factor"])
    if kind == "yarn":
        writer.add_rope_scaling_orig_ctx_len(scaling["original_max_position_embeddings"])
    if kind == "longrope":
        original = cfg["original_max_position_embeddings"]
        factor = cfg["max_position_embeddings"] / original
        writer.add_rope_scaling_orig_ctx_len(original)
        writer.add_rope_scaling_attn_factors(math.sqrt(1 + math.log(factor) / math.log(original)))


_GGUF_NAMES = {
    "input_layernorm": "attn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v", "self_attn.qkv_proj": "attn_qkv", "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm", "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up", "mlp.gate_up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
    "pre_feedforward_layernorm": "ffn_norm", "post_feedforward_layernorm": "post_ffw_norm",
}  # fmt: skip


def gguf_tensors(cfg: Config, by_name: dict[str, Array]) -> dict[str, Array]:
    """The weights under llama.cpp's names, as its converter would write them."""
    tensors = {_gguf_name(cfg, name): _gguf_values(cfg, name, values) for name, values in by_name.items()}
    scaling = cfg.get("rope_scaling") or {}
    if scaling.get("rope_type") == "llama3":
        tensors["rope_freqs.weight"] = _llama3_divisors(cfg)
    if scaling.get("type") == "longrope":
        tensors["rope_factors_short.weight"] = np.array(scaling["short_factor"], np.float32)
        tensors["rope_factors_long.weight"] = np.array(scaling["long_factor"], np.float32)
    return tensors


def _gguf_name(cfg: Config, name: str) -> str:
    top = {
        "model.embed_tokens.weight": "token_embd.weight",
        "model.norm.weight": "output_norm.weight",
        "lm_head.weight": "output.weight",
    }
    if name in top:
        return top[name]
    _, _, index, rest = name.split(".", 3)
    stem, suffix = rest.rsplit(".", 1)
    gemma = cfg["model_type"] == "gemma3_text"
    middle = "post_attention_norm" if gemma else "ffn_norm"
    return f"blk.{index}.{middle if stem == 'post_attention_layernorm' else _GGUF_NAMES[stem]}.{suffix}"


def _gguf_values(cfg: Config, name: str, values: Array) -> Array:
    if cfg["model_type"] == "gemma3_text" and "norm" in name:
        return values + np.float32(1.0)
    if cfg["model_type"] in ("llama", "mistral") and name.endswith(("q_proj.weight", "k_proj.weight")):
        # llama.cpp rotates neighbouring rows here, transformers rows half a head apart
        heads = values.reshape(-1, 2, head_dim(cfg) // 2, values.shape[1])
        return np.ascontiguousarray(heads.swapaxes(1, 2)).reshape(values.shape)
    return values


def _llama3_divisors(cfg: Config) -> Array:
    """One divisor per frequency: 1 for short waves, `factor` for long ones, between them a blend."""
    scaling, dim = cfg["rope_scaling"], head_dim(cfg)
    divisors = []
    for i in range(0, dim, 2):
        wave = 2 * math.pi * cfg["rope_theta"] ** (i / dim)
        turns = scaling["original_max_position_embeddings"] / wave
        low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
        blend = min(max((turns - low) / (high - low), 0.0), 1.0)
        divisors.append(1 / ((1 - blend) / scaling["factor"] + blend))
    return np.array(divisors, np.float32)
