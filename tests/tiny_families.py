"""Tiny random models of any family of transformers: sizes are found by the names of a configuration's fields, so that a
family which nobody here has heard of is built too.
"""

from __future__ import annotations

import re
from typing import Any

import torch
from transformers import AutoModelForCausalLM
from transformers.models.auto.configuration_auto import CONFIG_MAPPING
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

FAMILIES = sorted(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES)
VOCAB, TEXT = 256, 192  # ids from TEXT on are images, ends of texts and the like
MOST_PARAMETERS = 40_000_000

_LAYERS = -1
_ENDS = r"(^|_)(eos|bos|pad|sep|cls|unk|mask|decoder_start)(_token)?_(id|index)$"
# the first that fits a field's name says what it becomes; fields that none fits keep their value
_SIZES: list[tuple[str, int]] = [
    (r"(_token_id|_token_index|_index)$", TEXT + 20),
    (r"vocab_size_base", 64),
    (r"vocab", VOCAB),
    (r"n_shared_experts|num_shared_experts|moe_num_shared_experts", 1),
    (r"experts_per_tok|top_?k_experts|moe_top_?k|^moe_k$|^top_k$|num_experts_per_token", 2),
    (r"(num|n_routed|local|moe_num)_experts|num_local_experts|n_routed_experts", 4),
    (r"^(n_group|topk_group|num_expert_group|n_groups|mamba_n_groups|mamba_ngroups|o_groups|num_query_groups)$", 1),
    (r"num_(key_value|kv)_heads|kv_n_heads|swa_num_key_value_heads|num_kv_heads", 2),
    (r"^(mamba_n_heads|mamba_num_heads|n_mamba_heads)$", 8),
    (r"qk_head_dim", 32),
    (r"head_dim$|^d_head$|dim_head|head_size|^d_kv$|mamba_d_head|mamba_headdim|kv_channels", 16),
    (r"(num|n)_.*heads$|^(n|num)_heads?$|attention_heads$", 4),
    (r"rotary_dim", 8),
    (r"lora_rank|time_step_rank|dt_rank|_rank$", 8),
    (r"window", 8),
    (r"first_k_dense_replace|num_dense_layers", 1),
    (r"num_nextn_predict_layers|num_kv_shared_layers|lstm_layers", 0),
    (r"^(num_hidden_layers|n_layers?|num_layers|encoder_layers|decoder_layers|num_(de|en)coder_layers)$", _LAYERS),
    (r"position|n_ctx|max_seq_len|model_max_length|context_length|max_target", 256),
    (r"chunk_size$|chunk_length$", 8),
    (r"intermediate|ffn|d_ff|inner|dff|feed_forward|mlp_dim|dim_ff|mamba_d_ssm|lru_width", 128),
    (r"hidden_size|d_model|n_embd|embed_dim|embedding_dim|emb_dim|input_size|embedding_size|^depth$", 64),
    (r"state", 16),
    (r"num_layers_per_stack", 1),
    (r"image_size|crop_size", 32),
    (r"patch_size", 16),
]
LAYERS = {"dory": 8, "zamba": 8, "zamba2": 13}
# what a family's defaults do not say, or say of its own sizes in a way of its own
OWN: dict[str, dict[str, Any]] = {
    "bamba": {"attn_layer_indices": [1]},
    "cohere_compass_text": {
        "rope_parameters": {"full_attention": {"rope_type": "default", "rope_theta": 10000.0},
                            "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0}},
    },
    "dbrx": {"attn_config": {"kv_n_heads": 2, "rope_theta": 10000.0, "clip_qkv": 8.0}},
    "deepseek_v2": {"num_experts_per_tok": 2, "n_group": 1, "topk_group": 1},
    "dory": {"num_hidden_layers": 8, "n_input_layers": 2, "n_recurrent_layers": 4, "n_output_layers": 2},
    "dots1": {"n_routed_experts": 4, "n_shared_experts": 1, "num_experts_per_tok": 2, "first_k_dense_replace": 1},
    "falcon_h1": {"mamba_d_ssm": 64, "mamba_n_heads": 4, "mamba_d_head": 16},
    "granitemoehybrid": {"layer_types": ["linear_attention", "full_attention"], "num_hidden_layers": 2},
    "hrm_text": {"num_hidden_layers": 8},
    "jamba": {"attn_layer_period": 2, "attn_layer_offset": 1},
    "lfm2_moe": {"layer_types": ["conv", "full_attention", "conv"], "num_hidden_layers": 3},
    "mamba2": {"num_heads": 8, "head_dim": 16},
    "reformer": {"axial_pos_shape": [16, 16], "axial_pos_embds_dim": [16, 48]},
    "xmod": {"default_language": "en_XX", "languages": ["en_XX"]},
}  # fmt: skip


def tiny_config(family: str) -> Any:
    """Raises whatever the family's configuration says to these sizes."""
    kind = CONFIG_MAPPING[family]
    return kind(**shrunk(kind().to_dict(), LAYERS.get(family)) | OWN.get(family, {}))


def tiny_model(family: str) -> Any:
    """A random model whose attention is not flat, where it bears that. Raises ValueError for one that comes out large,
    and whatever the model raises that cannot answer a text alone."""
    config = tiny_config(family)
    with torch.device("meta"):
        size = sum(parameter.numel() for parameter in AutoModelForCausalLM.from_config(config).parameters())
    if size > MOST_PARAMETERS:
        raise ValueError(f"{size:,} parameters")
    for factor in (4, 1):
        torch.manual_seed(5)
        model = AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
        with torch.no_grad():
            for parameter in model.parameters():
                if parameter.dim() > 1:
                    parameter.mul_(factor)
            if model(input_ids=torch.arange(3, 12)[None]).logits.isfinite().all():
                return model
    raise ValueError("its scores are not finite")


def shrunk(config: dict[str, Any], layers: int | None = None) -> dict[str, Any]:
    """A configuration's fields, small; by default with as many layers as it takes to have one of every kind."""
    kinds = config.get("layer_types") or config.get("layers_block_type") or []
    layers = layers or next((n for n in range(2, len(kinds) + 1) if set(kinds[:n]) == set(kinds)), 3)
    small = {name: _field(name, value, layers) for name, value in config.items() if not _is_computed(name)}
    if config.get("num_key_value_heads") in (None, config.get("num_attention_heads")):
        small |= {"num_key_value_heads": 4} if "num_key_value_heads" in small else {}
    for name, size in (("head_dim", 16), ("eos_token_id", VOCAB - 1)):
        if name in small and small[name] is None:
            small[name] = size
    return small


def _is_computed(name: str) -> bool:
    return name.startswith("_") or name in ("transformers_version", "model_type", "dtype", "architectures", "id2label")


def _field(name: str, value: Any, layers: int) -> Any:
    if name == "per_layer_config" and value:
        return {layer: own for layer, own in value.items() if int(layer) < layers}
    if isinstance(value, dict):
        return shrunk(value) if name.endswith("_config") else value
    if isinstance(value, list):
        return _listed(name, value, layers)
    if name == "is_decoder":
        return True
    if isinstance(value, bool) or not isinstance(value, int):
        return value
    return _number(name, value, layers)


def _number(name: str, value: int, layers: int) -> int:
    if re.search(_ENDS, name):
        return VOCAB - 1 if "eos" in name else min(value, VOCAB - 2)
    found = next((size for pattern, size in _SIZES if re.search(pattern, name)), value)
    if found == _LAYERS:
        return layers
    return min(found, value) if value else 0


def _listed(name: str, values: list[Any], layers: int) -> list[Any]:
    if name.endswith(("_indices", "_idx", "_ids", "_idxs")):
        return [value for value in values if value < layers] or [1]
    return values[:layers] if len(values) > 8 else values
