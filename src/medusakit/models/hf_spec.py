"""A Hugging Face config.json to ModelSpec.

Both spellings of the rotary settings are read: `rope_parameters` (transformers 5), `rope_theta` + `rope_scaling`.
Defaults are those of each family's configuration class: they count where an older config.json leaves a key out.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from medusakit.errors import FETCH_AGAIN, ModelError
from medusakit.models.features import refuse_family, refuse_feature
from medusakit.models.hf_rope import read_rope, rope_table
from medusakit.models.spec import ModelSpec, RopeSpec

Config = Mapping[str, Any]

_MODEL_TYPES = {
    "llama": "llama",
    "mistral": "mistral",
    "qwen2": "qwen2",
    "qwen3": "qwen3",
    "gemma3_text": "gemma3",
    "phi3": "phi3",
}
# keys that change the output, with the only value that this version runs
_NEUTRAL: dict[str, tuple[object, ...]] = {
    "attention_bias": (None, False),
    "mlp_bias": (None, False),
    "use_bidirectional_attention": (None, False),
    "attn_logit_softcapping": (None, 0, 0.0),
    "quantization_config": (None,),
    "num_experts": (None, 0),
    "num_local_experts": (None, 0),
    "is_encoder_decoder": (None, False),
    "add_cross_attention": (None, False),
}
_MAX_LAYERS = 10_000
_ACTIVATIONS = {"silu": "silu", "swish": "silu", "gelu_pytorch_tanh": "gelu_tanh"}


@dataclass(frozen=True, slots=True)
class _Defaults:
    """What a family's configuration class assumes for keys that a config.json may leave out."""

    norm_eps: float = 1e-6
    tied: bool = False
    context: int = 32768
    head_dim: int | None = None
    kv_heads: int | None = None  # None: as many as query heads
    window: int | None = None
    heads: int | None = None
    vocab: int | None = None
    activation: str = "silu"


_DEFAULTS = {
    "llama": _Defaults(context=2048),
    "mistral": _Defaults(context=131072, kv_heads=8, window=4096),
    "qwen2": _Defaults(kv_heads=32),
    "qwen3": _Defaults(kv_heads=32, head_dim=128),
    "gemma3": _Defaults(
        tied=True,
        context=131072,
        head_dim=256,
        heads=8,
        kv_heads=4,
        window=4096,
        vocab=262208,
        activation="gelu_pytorch_tanh",
    ),
    "phi3": _Defaults(norm_eps=1e-5, context=4096),
}


def text_config(config: Config, path: Path) -> tuple[Config, bool]:
    """(the language model's own config, whether it sits inside a vision model as `text_config`)"""
    if config.get("model_type") == "gemma3" and isinstance(config.get("text_config"), dict):
        return {"tie_word_embeddings": True, **config["text_config"], "model_type": "gemma3_text"}, True
    kind = config.get("model_type")
    if not isinstance(kind, str) or kind not in _MODEL_TYPES:
        refuse_family(path, str(kind))
    return config, False


def spec_from_config(config: Config, path: Path) -> ModelSpec:
    """Read the language model's config. UnsupportedModelError for features we lack, ModelError for bad values."""
    family = _MODEL_TYPES[config["model_type"]]
    defaults = _DEFAULTS[family]
    _check_features(config, path)
    heads = _count(config, "num_attention_heads", path, defaults.heads)
    hidden = _count(config, "hidden_size", path)
    head_dim = _count(config, "head_dim", path, defaults.head_dim or max(1, hidden // heads))
    layers = _count(config, "num_hidden_layers", path)
    if layers > _MAX_LAYERS:  # lists of layers would fill the memory before the missing tensors are told
        raise ModelError(
            f"{path}/config.json: num_hidden_layers is {layers}, expected at most {_MAX_LAYERS}",
            hint=FETCH_AGAIN,
        )
    context = _count(config, "max_position_embeddings", path, defaults.context)
    rope, rope_local = _ropes(config, family, head_dim, context, path)
    return ModelSpec(
        family=family,
        name=str(config.get("_name_or_path") or path.resolve().name),
        vocab_size=_count(config, "vocab_size", path, defaults.vocab),
        hidden_size=hidden,
        num_layers=layers,
        num_heads=heads,
        num_kv_heads=_count(config, "num_key_value_heads", path, defaults.kv_heads or heads),
        head_dim=head_dim,
        ffn_size=_count(config, "intermediate_size", path),
        norm_eps=_positive(config, "rms_norm_eps", path, defaults.norm_eps),
        context_length=context,
        rope=rope,
        windows=_windows(config, family, layers, path),
        rope_local=rope_local,
        tied_embeddings=bool(config.get("tie_word_embeddings", defaults.tied)),
        qkv_bias=family == "qwen2",
        qk_norm=family in ("qwen3", "gemma3"),
        sandwich_norms=family == "gemma3",
        activation="gelu_tanh" if family == "gemma3" else "silu",
        embed_scale=hidden**0.5 if family == "gemma3" else 1.0,
        attn_scale=_positive(config, "query_pre_attn_scalar", path, 256) ** -0.5 if family == "gemma3" else None,
        final_softcap=_softcap(config, path) if family == "gemma3" else None,
    )


def _count(config: Config, key: str, path: Path, default: int | None = None) -> int:
    value = config.get(key)
    if value is None:
        value = default
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ModelError(
            f"{path}/config.json: {key} is {value!r}, expected a positive whole number",
            hint=FETCH_AGAIN,
        )
    return value


def _positive(config: Config, key: str, path: Path, default: float) -> float:
    value = config.get(key, default)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < math.inf:
        raise ModelError(
            f"{path}/config.json: {key} is {value!r}, expected a positive number",
            hint=FETCH_AGAIN,
        )
    return float(value)


def _softcap(config: Config, path: Path) -> float | None:
    key = "final_logit_softcapping"
    return _positive(config, key, path, 0.0) if config.get(key) else None


def _check_features(config: Config, path: Path) -> None:
    where = path / "config.json"
    for key, allowed in _NEUTRAL.items():
        if config.get(key) not in allowed:
            refuse_feature(where, key, config[key], f"{allowed[-1]!r} or no such key")
    family = _MODEL_TYPES[config["model_type"]]
    expected = _DEFAULTS[family].activation
    activation = config.get("hidden_activation" if family == "gemma3" else "hidden_act") or expected
    if _ACTIVATIONS.get(str(activation)) != _ACTIVATIONS[expected]:
        refuse_feature(where, "hidden_act", activation, expected)


def _windows(config: Config, family: str, layers: int, path: Path) -> tuple[int, ...]:
    window = config.get("sliding_window", _DEFAULTS[family].window)
    if family in ("qwen2", "qwen3") and not config.get("use_sliding_window", False):
        window = None
    if window is None or family == "llama":
        return (0,) * layers
    size = _count({"sliding_window": window}, "sliding_window", path)
    return tuple(size if sliding else 0 for sliding in _sliding_layers(config, family, layers, path))


def _sliding_layers(config: Config, family: str, layers: int, path: Path) -> list[bool]:
    """Which layers have the window: `layer_types` where the family knows it, else the family's own rule."""
    if family in ("mistral", "phi3"):
        return [True] * layers
    kinds = config.get("layer_types")
    if kinds is not None:
        known = ("sliding_attention", "full_attention")
        if not isinstance(kinds, list) or len(kinds) != layers or any(kind not in known for kind in kinds):
            refuse_feature(path / "config.json", "layer_types", kinds, f"{layers} of sliding_attention, full_attention")
        return [kind == "sliding_attention" for kind in kinds]
    if family == "gemma3":
        period = _count(config, "sliding_window_pattern", path, 6)
        return [bool((index + 1) % period) for index in range(layers)]
    first = _count(config, "max_window_layers", path, 28)
    return [index >= first for index in range(layers)]


def _ropes(config: Config, family: str, head_dim: int, context: int, path: Path) -> tuple[RopeSpec, RopeSpec | None]:
    """(rope of full layers, rope of layers with a window or None where they share it)"""
    given, scaling = (rope_table(config.get(key), path) for key in ("rope_parameters", "rope_scaling"))
    if family != "gemma3":
        return read_rope(config, given or scaling, head_dim, context, path), None
    wide = dict(rope_table(given.get("full_attention"), path)) | dict(scaling)
    wide.setdefault("rope_theta", config.get("rope_theta", 1_000_000.0))
    near = dict(rope_table(given.get("sliding_attention"), path))
    near.setdefault("rope_theta", config.get("rope_local_base_freq", 10_000.0))
    return read_rope({}, wide, head_dim, context, path), read_rope({}, near, head_dim, context, path)
