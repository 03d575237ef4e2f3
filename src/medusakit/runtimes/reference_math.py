"""The decoder of a `ModelSpec` in plain NumPy, written for reading, not for speed: every layer is its formula.

All families of models/spec.py. Arrays are [n nodes, ...]; `dtype` is float64 for an oracle, float32 for comparisons.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from medusakit.models.rope import inverse_frequencies
from medusakit.models.spec import RopeSpec, WeightSource
from medusakit.tree.topology import BoolArray, IntArray

Array = NDArray[Any]
KeysValues = tuple[Array, Array]  # each [positions, kv_heads, head_dim]


class Decoder:
    """Weights of a source in one dtype, and the forward pass over nodes with explicit positions and visibility."""

    def __init__(self, source: WeightSource, dtype: DTypeLike, max_context: int) -> None:
        self.spec = source.spec
        self._weights: dict[str, Array] = {name: source.tensor(name).f32().astype(dtype) for name in source.names()}
        self._max_context = max_context
        self.dtype = np.dtype(dtype)

    def nothing(self) -> list[KeysValues]:
        """The KV of an empty row: per layer, keys and values of no position."""
        shape = (0, self.spec.num_kv_heads, self.spec.head_dim)
        return [(np.empty(shape, self.dtype), np.empty(shape, self.dtype)) for _ in range(self.spec.num_layers)]

    def run(
        self, past: Sequence[KeysValues], token_ids: IntArray, positions: IntArray, sees: BoolArray
    ) -> tuple[Array, list[KeysValues]]:
        """(hidden states after the final norm [n, d], keys and values of the new nodes per layer).

        past       per layer, keys and values of positions 0 .. length - 1
        positions  [n], of the new nodes; sees [n, n]: which new nodes each of them attends to
        """
        spec = self.spec
        x = self._weights["embed"][token_ids] * spec.embed_scale
        new: list[KeysValues] = []
        for layer in range(spec.num_layers):
            normed = self._norm(x, f"layers.{layer}.attn_norm")
            update, kept = self._attention(layer, normed, past[layer], positions, sees)
            new.append(kept)
            x = x + (self._norm(update, f"layers.{layer}.post_attn_norm") if spec.sandwich_norms else update)
            update = self._feed_forward(layer, self._norm(x, f"layers.{layer}.ffn_norm"))
            x = x + (self._norm(update, f"layers.{layer}.post_ffn_norm") if spec.sandwich_norms else update)
        return self._norm(x, "final_norm"), new

    def logits(self, hidden: Array) -> Array:
        """[n, V] of hidden states [n, d]."""
        head = self._weights["embed" if self.spec.tied_embeddings else "lm_head"]
        scores: Array = hidden @ head.T
        cap = self.spec.final_softcap
        return scores if cap is None else cap * np.tanh(scores / cap)

    def _attention(
        self, layer: int, x: Array, past: KeysValues, positions: IntArray, sees: BoolArray
    ) -> tuple[Array, KeysValues]:
        spec, window = self.spec, self.spec.windows[layer]
        rope = spec.rope_local if window and spec.rope_local is not None else spec.rope
        query, key, value = (self._heads(layer, part, x) for part in "qkv")
        query, key = self._rotated(query, positions, rope), self._rotated(key, positions, rope)
        keys, values = np.concatenate([past[0], key]), np.concatenate([past[1], value])
        length = len(past[0])
        key_positions = np.concatenate([np.arange(length), positions])
        open_ = np.concatenate([np.ones((len(x), length), np.bool_), sees], axis=1)
        if window:
            open_ &= positions[:, None] - key_positions[None, :] < window
        group = spec.num_heads // spec.num_kv_heads
        scale = spec.head_dim**-0.5 if spec.attn_scale is None else spec.attn_scale
        scores = np.einsum("qhd,khd->hqk", query, np.repeat(keys, group, axis=1)) * scale
        mixed = np.einsum("hqk,khd->qhd", _softmax(scores, open_), np.repeat(values, group, axis=1))
        return self._linear(mixed.reshape(len(x), -1), f"layers.{layer}.o"), (key, value)

    def _heads(self, layer: int, part: str, x: Array) -> Array:
        heads = self._linear(x, f"layers.{layer}.{part}").reshape(len(x), -1, self.spec.head_dim)
        return self._norm(heads, f"layers.{layer}.{part}_norm") if self.spec.qk_norm and part != "v" else heads

    def _feed_forward(self, layer: int, x: Array) -> Array:
        gate = self._linear(x, f"layers.{layer}.gate")
        active = _silu(gate) if self.spec.activation == "silu" else _gelu_tanh(gate)
        return self._linear(active * self._linear(x, f"layers.{layer}.up"), f"layers.{layer}.down")

    def _linear(self, x: Array, name: str) -> Array:
        product: Array = x @ self._weights[name].T
        bias = self._weights.get(f"{name}_bias")
        return product if bias is None else product + bias

    def _norm(self, x: Array, name: str) -> Array:
        """RMS norm over the last axis."""
        scale = np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + self.spec.norm_eps)
        normed: Array = x / scale * self._weights[name]
        return normed

    def _rotated(self, heads: Array, positions: IntArray, rope: RopeSpec) -> Array:
        """Rotary embedding of the first `rope.dim` dimensions of every head; halves, not interleaved pairs."""
        frequencies, stretch = inverse_frequencies(rope, self._max_context)
        angles = positions[:, None, None] * frequencies.astype(np.float64)
        cos, sin = ((f(angles) * stretch).astype(self.dtype) for f in (np.cos, np.sin))
        first, second = heads[..., : rope.dim // 2], heads[..., rope.dim // 2 : rope.dim]
        turned = [first * cos - second * sin, second * cos + first * sin, heads[..., rope.dim :]]
        return np.concatenate(turned, axis=-1)


def _softmax(scores: Array, open_: BoolArray) -> Array:
    masked = np.where(open_, scores, -np.inf)
    weights = np.exp(masked - masked.max(axis=-1, keepdims=True))
    return np.asarray(weights / weights.sum(axis=-1, keepdims=True))


def _silu(x: Array) -> Array:
    return np.asarray(x / (1 + np.exp(-x)))


def _gelu_tanh(x: Array) -> Array:
    return np.asarray(0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))))
