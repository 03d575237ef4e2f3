"""Every family, from both kinds of file, against transformers: the same weights by name and the same logits.

The forward pass here is a plain NumPy decoder that knows nothing but ModelSpec and our tensor names, so a wrong row
order, rope, window, norm or scale in a reader shows as a wrong logit.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from medusakit.models.resolve import open_weights, resolve
from medusakit.models.rope import inverse_frequencies
from medusakit.models.spec import ModelSpec, RopeSpec, WeightSource
from tiny import VARIANTS, write_gguf, write_hf

Array = NDArray[np.float64]

LENGTH = 40  # past every tiny window (8, 9) and past phi3-longrope's trained length (32)


def forward(source: WeightSource, ids: NDArray[np.int64]) -> Array:
    """Logits [n, V] in float64."""
    spec = source.spec
    x = _tensor(source, "embed")[ids] * spec.embed_scale
    for index in range(spec.num_layers):
        layer = f"layers.{index}"
        x = x + _block(
            source, _attention(source, _norm(source, f"{layer}.attn_norm", x), index), f"{layer}.post_attn_norm"
        )
        y = _norm(source, f"{layer}.ffn_norm", x)
        y = _act(spec, y @ _tensor(source, f"{layer}.gate").T) * (y @ _tensor(source, f"{layer}.up").T)
        x = x + _block(source, y @ _tensor(source, f"{layer}.down").T, f"{layer}.post_ffn_norm")
    head = "embed" if spec.tied_embeddings else "lm_head"
    logits: Array = _norm(source, "final_norm", x) @ _tensor(source, head).T
    return logits if spec.final_softcap is None else np.tanh(logits / spec.final_softcap) * spec.final_softcap


def _tensor(source: WeightSource, name: str) -> Array:
    return source.tensor(name).f32().astype(np.float64)


def _norm(source: WeightSource, name: str, x: Array) -> Array:
    scaled: Array = x / np.sqrt((x**2).mean(-1, keepdims=True) + source.spec.norm_eps) * _tensor(source, name)
    return scaled


def _block(source: WeightSource, y: Array, norm: str) -> Array:
    return _norm(source, norm, y) if source.spec.sandwich_norms else y


def _act(spec: ModelSpec, x: Array) -> Array:
    if spec.activation == "silu":
        return x / (1 + np.exp(-x))
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


def _attention(source: WeightSource, x: Array, index: int) -> Array:
    spec, length = source.spec, len(x)
    q, k, v = (_project(source, x, index, key) for key in "qkv")
    if spec.qk_norm:
        q, k = _norm(source, f"layers.{index}.q_norm", q), _norm(source, f"layers.{index}.k_norm", k)
    window = spec.windows[index]
    rope = spec.rope_local if spec.rope_local is not None and window else spec.rope
    q, k = _rotate(rope, q), _rotate(rope, k)
    k, v = (np.repeat(t, spec.num_heads // spec.num_kv_heads, axis=1) for t in (k, v))
    scores = np.einsum("qhd,khd->hqk", q, k) * (spec.attn_scale or spec.head_dim**-0.5)
    distance = np.arange(length)[:, None] - np.arange(length)[None]
    hidden = (distance < 0) | ((distance >= window) if window else False)
    scores = np.where(hidden, -np.inf, scores)
    probabilities = np.exp(scores - scores.max(-1, keepdims=True))
    probabilities /= probabilities.sum(-1, keepdims=True)
    mixed = np.einsum("hqk,khd->qhd", probabilities, v).reshape(length, -1)
    return mixed @ _tensor(source, f"layers.{index}.o").T


def _project(source: WeightSource, x: Array, index: int, key: str) -> Array:
    y = x @ _tensor(source, f"layers.{index}.{key}").T
    if source.spec.qkv_bias:
        y = y + _tensor(source, f"layers.{index}.{key}_bias")
    return y.reshape(len(x), -1, source.spec.head_dim)


def _rotate(rope: RopeSpec, x: Array) -> Array:
    inv_freq, scale = inverse_frequencies(rope, len(x))
    angle = np.arange(len(x))[:, None, None] * inv_freq.astype(np.float64)
    half = rope.dim // 2
    first, second, rest = x[..., :half], x[..., half : rope.dim], x[..., rope.dim :]
    cos, sin = np.cos(angle) * scale, np.sin(angle) * scale
    return np.concatenate([first * cos - second * sin, second * cos + first * sin, rest], axis=-1)


def _reference(folder: Path) -> tuple[dict[str, NDArray[np.float32]], NDArray[np.float32], NDArray[np.int64]]:
    """(state dict, logits, ids) of transformers; fails where it does not take every tensor of the folder."""
    import torch
    from transformers import AutoModelForCausalLM

    model, info = AutoModelForCausalLM.from_pretrained(folder, output_loading_info=True, attn_implementation="eager")
    assert not info["missing_keys"] and not info["unexpected_keys"] and not info["mismatched_keys"]
    ids = np.random.default_rng(5).integers(0, 128, LENGTH)
    with torch.no_grad():
        logits = model(torch.from_numpy(ids)[None]).logits[0].numpy()
    return {name: tensor.numpy() for name, tensor in model.state_dict().items()}, logits, ids


@pytest.mark.parametrize("variant", VARIANTS)
def test_logits_of_both_files_equal_transformers(variant: str, tmp_path: Path) -> None:
    folder = write_hf(tmp_path / "hf", variant, seed=1)
    file = write_gguf(tmp_path / "m.gguf", variant, seed=1)
    _, logits, ids = _reference(folder)
    assert logits.std() > 0.1
    for path in (folder, file):
        ours = forward(open_weights(resolve(str(path))), ids)
        np.testing.assert_allclose(ours, logits, atol=2e-4, rtol=0)


@pytest.mark.parametrize("variant", VARIANTS)
def test_both_files_give_the_same_spec_and_weights(variant: str, tmp_path: Path) -> None:
    hf = open_weights(resolve(str(write_hf(tmp_path / "hf", variant))))
    gguf = open_weights(resolve(str(write_gguf(tmp_path / "m.gguf", variant))))
    assert list(hf.names()) == list(gguf.names())
    for name in hf.names():
        np.testing.assert_array_equal(hf.tensor(name).f32(), gguf.tensor(name).f32(), err_msg=name)
    ours, theirs = hf.spec, gguf.spec
    for field in (
        "family", "vocab_size", "hidden_size", "num_layers", "num_heads", "num_kv_heads", "head_dim", "ffn_size",
        "context_length", "windows", "tied_embeddings", "qkv_bias", "qk_norm", "sandwich_norms", "activation",
        "embed_scale", "final_softcap",
    ):  # fmt: skip
        assert getattr(ours, field) == getattr(theirs, field), field
    assert ours.norm_eps == pytest.approx(theirs.norm_eps)
    for context in (16, 200):
        expected, scale = inverse_frequencies(ours.rope, context)
        found, found_scale = inverse_frequencies(theirs.rope, context)
        np.testing.assert_allclose(found, expected, rtol=2e-6)
        assert found_scale == pytest.approx(scale)
