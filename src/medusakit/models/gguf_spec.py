"""GGUF metadata to ModelSpec.

Key names are those of the GGUF specification and of llama.cpp's converter. A key of the architecture that is not in the
lists below is refused: it may change the model's output. Facts that llama.cpp keeps in code, not in the file (gemma3's
layer pattern, local rope base and attention scale), stand here with their values.
"""

from __future__ import annotations

import numpy as np

from medusakit.errors import FETCH_AGAIN, GIVE_A_MODEL, OTHER_MODEL, ModelError, UnsupportedModelError
from medusakit.models.features import refuse_family, refuse_feature
from medusakit.models.gguf_file import GgufFile, Value
from medusakit.models.spec import ModelSpec, RopeSpec

ARCHITECTURES = ("llama", "qwen2", "qwen3", "gemma3", "phi3")  # mistral's converter writes "llama"

_GEMMA3_PATTERN = 6  # five layers with a window, then one without
_GEMMA3_LOCAL_THETA = 10_000.0
_GEMMA3_27B_LAYERS = 62  # the one size whose attention scale is not head_dim ** -0.5

_USED = {
    "block_count", "context_length", "embedding_length", "feed_forward_length", "vocab_size",
    "attention.head_count", "attention.head_count_kv", "attention.key_length", "attention.value_length",
    "attention.layer_norm_rms_epsilon", "attention.sliding_window", "attention.sliding_window_pattern",
    "final_logit_softcapping", "rope.dimension_count", "rope.freq_base", "rope.freq_base_swa",
    "rope.scaling.type", "rope.scaling.factor", "rope.scaling.attn_factor", "rope.scaling.original_context_length",
    "rope.scaling.yarn_beta_fast", "rope.scaling.yarn_beta_slow",
}  # fmt: skip
# say nothing about the output of a causal decoder
_HARMLESS = {"rope.scaling.finetuned", "pooling_type", "attention.layer_norm_epsilon", "tensor_data_layout"}
# may be present, but only with the value that means "not used"
_NEUTRAL: dict[str, object] = {"attention.causal": True, "use_parallel_residual": False, "expert_count": 0,
                               "expert_used_count": 0, "attn_logit_softcapping": 0.0}  # fmt: skip


class _Keys:
    """Typed access to the keys of one architecture."""

    def __init__(self, file: GgufFile, arch: str) -> None:
        self.file = file
        self.arch = arch

    def get(self, key: str) -> Value | None:
        return self.file.metadata.get(f"{self.arch}.{key}")

    def number(self, key: str, default: float | None = None) -> float:
        value = self.get(key)
        if value is None and default is not None:
            return default
        if isinstance(value, np.ndarray) and len(value) and (value == value[0]).all():
            value = value[0].item()  # some converters write one value per layer
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise ModelError(
                f"{self.file.path}: {self.arch}.{key} is {_short(value)}, expected one number",
                hint=FETCH_AGAIN,
            )
        return float(value)

    def positive(self, key: str, default: float | None = None) -> float:
        value = self.number(key, default)
        if not 0 < value < float("inf"):  # NaN fails both
            raise ModelError(
                f"{self.file.path}: {self.arch}.{key} is {value:g}, expected a positive number",
                hint=FETCH_AGAIN,
            )
        return value

    def count(self, key: str, default: int | None = None) -> int:
        value = self.number(key, default)
        if not 0 < value < 2**31 or value != int(value):
            raise ModelError(
                f"{self.file.path}: {self.arch}.{key} is {value:g}, expected a positive whole number",
                hint=FETCH_AGAIN,
            )
        return int(value)


def spec_from_gguf(file: GgufFile) -> ModelSpec:
    """Read the metadata. UnsupportedModelError for other architectures and features, ModelError for bad values."""
    _check_kind(file)
    arch = file.metadata["general.architecture"]
    assert isinstance(arch, str)  # _check_kind
    keys = _Keys(file, arch)
    _check_features(keys)
    heads, hidden = keys.count("attention.head_count"), keys.count("embedding_length")
    head_dim = keys.count("attention.key_length", max(1, hidden // heads))
    if keys.count("attention.value_length", head_dim) != head_dim:
        refuse_feature(file.path, f"{arch}.attention.value_length", keys.get("attention.value_length"), f"{head_dim}")
    layers = keys.count("block_count")
    if layers > len(file.tensors):  # a damaged count, which would fill the memory with lists of layers
        raise ModelError(
            f"{file.path}: {arch}.block_count is {layers}, but the file has {len(file.tensors)} tensors",
            hint=FETCH_AGAIN,
        )
    windows = _windows(keys, layers)
    return ModelSpec(
        family="mistral" if arch == "llama" and any(windows) else arch,
        name=str(file.metadata.get("general.name", file.path.stem)),
        vocab_size=_vocab_size(file),
        hidden_size=hidden,
        num_layers=layers,
        num_heads=heads,
        num_kv_heads=keys.count("attention.head_count_kv", heads),
        head_dim=head_dim,
        ffn_size=keys.count("feed_forward_length"),
        norm_eps=keys.positive("attention.layer_norm_rms_epsilon"),
        context_length=keys.count("context_length"),
        rope=_rope(keys, head_dim),
        windows=windows,
        rope_local=_local_rope(keys, head_dim),
        tied_embeddings="output.weight" not in file.tensors,
        qkv_bias=arch == "qwen2",
        qk_norm=arch in ("qwen3", "gemma3"),
        sandwich_norms=arch == "gemma3",
        activation="gelu_tanh" if arch == "gemma3" else "silu",
        embed_scale=hidden**0.5 if arch == "gemma3" else 1.0,
        attn_scale=(hidden / heads) ** -0.5 if arch == "gemma3" and layers == _GEMMA3_27B_LAYERS else None,
        final_softcap=keys.number("final_logit_softcapping", 0.0) or None,
    )


def _check_kind(file: GgufFile) -> None:
    arch = file.metadata.get("general.architecture")
    if not isinstance(arch, str):
        raise ModelError(
            f"{file.path} has no general.architecture: it does not say which model it holds",
            hint=FETCH_AGAIN,
        )
    kind = file.metadata.get("general.type", "model")
    if kind != "model":
        raise UnsupportedModelError(
            f"{file.path} holds a {_short(kind)}, not a model",
            hint="-m with the file of the model that it belongs to",
        )
    if arch not in ARCHITECTURES:
        refuse_family(file.path, arch)
    split = file.metadata.get("split.count", 0)
    if isinstance(split, int) and split > 1:
        raise UnsupportedModelError(
            f"{file.path} is one of {split} parts of a model",
            hint="llama-gguf-split --merge FIRST_PART.gguf merged.gguf",
        )


def _check_features(keys: _Keys) -> None:
    prefix = f"{keys.arch}."
    for full, value in keys.file.metadata.items():
        key = full.removeprefix(prefix)
        if not full.startswith(prefix) or key in _USED or key in _HARMLESS:
            continue
        if key not in _NEUTRAL or value != _NEUTRAL[key]:
            refuse_feature(
                keys.file.path, full, _short(value), repr(_NEUTRAL[key]) if key in _NEUTRAL else "no such key"
            )
    only_in = {"final_logit_softcapping": "gemma3", "attention.sliding_window_pattern": "gemma3"}
    for key, arch in only_in.items():
        if keys.get(key) is not None and keys.arch != arch:
            refuse_feature(keys.file.path, prefix + key, _short(keys.get(key)), f"no such key outside {arch}")


def _vocab_size(file: GgufFile) -> int:
    embed = file.tensors.get("token_embd.weight")
    if embed is None:
        raise ModelError(
            f"{file.path} has no tensor 'token_embd.weight': it holds no weights of a language model",
            hint=GIVE_A_MODEL,
        )
    return embed.shape[0]


def _windows(keys: _Keys, layers: int) -> tuple[int, ...]:
    """Sliding window per layer. llama (mistral) and phi3 use one on every layer, gemma3 on a pattern of layers."""
    value = keys.number("attention.sliding_window", 0.0)
    window = int(value)
    if keys.arch in ("qwen2", "qwen3") and window:
        refuse_feature(keys.file.path, f"{keys.arch}.attention.sliding_window", window, "no window")
    if keys.arch != "gemma3" or not window:
        return (window,) * layers
    pattern = keys.get("attention.sliding_window_pattern")
    if isinstance(pattern, np.ndarray) and len(pattern) == layers:
        return tuple(window if sliding else 0 for sliding in pattern.tolist())
    period = keys.count("attention.sliding_window_pattern", _GEMMA3_PATTERN)
    return tuple(window if (index + 1) % period else 0 for index in range(layers))


def _rope(keys: _Keys, head_dim: int) -> RopeSpec:
    dim = keys.count("rope.dimension_count", head_dim)
    if dim != head_dim and keys.arch != "phi3":
        refuse_feature(keys.file.path, f"{keys.arch}.rope.dimension_count", dim, f"{head_dim}, all of a head")
    theta = keys.positive("rope.freq_base", 10_000.0)
    if "rope_factors_long.weight" in keys.file.tensors:
        return _longrope(keys, theta, dim)
    if "rope_freqs.weight" in keys.file.tensors:
        return RopeSpec(theta, dim, "llama3", divisors=_vector(keys.file, "rope_freqs.weight", dim // 2))
    kind = keys.get("rope.scaling.type")
    if kind in (None, "none"):
        return RopeSpec(theta, dim)
    if kind == "linear":
        return RopeSpec(theta, dim, "linear", keys.positive("rope.scaling.factor"))
    if kind == "yarn":
        return _yarn(keys, theta, dim)
    raise UnsupportedModelError(
        f"{keys.file.path}: {keys.arch}.rope.scaling.type is {_short(kind)}; supported: none, linear, yarn, longrope",
        hint=OTHER_MODEL,
    )


def _yarn(keys: _Keys, theta: float, dim: int) -> RopeSpec:
    factor = keys.positive("rope.scaling.factor")
    given = keys.get("rope.scaling.attn_factor")
    # llama.cpp multiplies the file's factor by YaRN's own 0.1 ln(s) + 1
    scale = None if given is None else keys.positive("rope.scaling.attn_factor") * (0.1 * float(np.log(factor)) + 1.0)
    return RopeSpec(
        theta,
        dim,
        "yarn",
        factor,
        original_context=keys.count("rope.scaling.original_context_length"),
        beta_fast=keys.number("rope.scaling.yarn_beta_fast", 32.0),
        beta_slow=keys.number("rope.scaling.yarn_beta_slow", 1.0),
        attention_factor=scale,
    )


def _longrope(keys: _Keys, theta: float, dim: int) -> RopeSpec:
    original = keys.count("rope.scaling.original_context_length")
    given = keys.get("rope.scaling.attn_factor")
    return RopeSpec(
        theta,
        dim,
        "longrope",
        keys.count("context_length") / original,
        original_context=original,
        attention_factor=None if given is None else keys.positive("rope.scaling.attn_factor"),
        short_factors=_vector(keys.file, "rope_factors_short.weight", dim // 2),
        long_factors=_vector(keys.file, "rope_factors_long.weight", dim // 2),
    )


def _local_rope(keys: _Keys, head_dim: int) -> RopeSpec | None:
    if keys.arch != "gemma3":
        return None
    return RopeSpec(keys.positive("rope.freq_base_swa", _GEMMA3_LOCAL_THETA), head_dim)


def _vector(file: GgufFile, name: str, size: int) -> tuple[float, ...]:
    tensor = file.tensor(name)
    if tensor.shape != (size,) or tensor.format != "f32":
        raise ModelError(
            f"{file.path}: {name} is {tensor.format} {list(tensor.shape)}, expected f32 [{size}]",
            hint=FETCH_AGAIN,
        )
    return tuple(float(value) for value in tensor.f32())


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
