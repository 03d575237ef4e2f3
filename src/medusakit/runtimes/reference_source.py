"""Weights in memory: `ArraySource`, and random ones for a toy model, `random_source`."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from medusakit.models.spec import ModelSpec, RopeSpec, StoredTensor
from medusakit.tree.topology import FloatArray


@dataclass(frozen=True, slots=True)
class ArraySource:
    """A `WeightSource` over arrays in memory."""

    spec: ModelSpec
    arrays: dict[str, FloatArray]
    fingerprint: str
    default_weights: str = "f32"

    def names(self) -> Iterable[str]:
        return self.arrays

    def tensor(self, name: str) -> StoredTensor:
        array = self.arrays[name]
        return StoredTensor(name, "f32", array.shape, array)


def random_source(
    seed: int,
    vocab_size: int,
    *,
    hidden_size: int = 16,
    num_layers: int = 2,
    num_heads: int = 2,
    num_kv_heads: int = 1,
    context_length: int = 256,
    sharpness: float = 2.0,
) -> ArraySource:
    """Random llama weights. `sharpness` is about the standard deviation of the logits: larger is surer."""
    head_dim, ffn = hidden_size // num_heads, 2 * hidden_size
    spec = ModelSpec(
        "llama", f"random-{seed}", vocab_size, hidden_size, num_layers, num_heads, num_kv_heads, head_dim, ffn, 1e-6,
        context_length, RopeSpec(10000.0, head_dim), (0,) * num_layers, tied_embeddings=False,
    )  # fmt: skip
    rng = np.random.default_rng(seed)

    def matrix(rows: int, columns: int, scale: float = 1.5) -> FloatArray:
        values: FloatArray = rng.standard_normal((rows, columns)).astype(np.float32)
        values *= np.float32(scale / math.sqrt(columns))
        return values

    def norm() -> FloatArray:
        ones: FloatArray = 1 + matrix(1, hidden_size, 0.1 * math.sqrt(hidden_size))[0]
        return ones

    arrays = {"embed": matrix(vocab_size, hidden_size, 4.0), "final_norm": norm()}
    arrays["lm_head"] = matrix(vocab_size, hidden_size, sharpness)
    for layer in range(num_layers):
        at, kv_size = f"layers.{layer}", num_kv_heads * head_dim
        arrays |= {f"{at}.attn_norm": norm(), f"{at}.ffn_norm": norm()}
        arrays |= {f"{at}.q": matrix(hidden_size, hidden_size), f"{at}.o": matrix(hidden_size, hidden_size)}
        arrays |= {f"{at}.{part}": matrix(kv_size, hidden_size) for part in "kv"}
        arrays |= {f"{at}.gate": matrix(ffn, hidden_size), f"{at}.up": matrix(ffn, hidden_size)}
        arrays[f"{at}.down"] = matrix(hidden_size, ffn)
    return ArraySource(spec, arrays, f"random-{seed}-{vocab_size}-{hidden_size}-{num_layers}")
