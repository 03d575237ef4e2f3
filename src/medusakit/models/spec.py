"""What a model family looks like: the numbers a runtime needs to build a decoder, whatever file they came from.

Tensor names are ours, the same for every source (shapes [out, in], rotary halves in the "neox" order: first half, then
second half):

    embed                          [V, d]
    layers.{i}.attn_norm           [d]
    layers.{i}.q / k / v / o       [heads * head_dim, d] ... o: [d, heads * head_dim]
    layers.{i}.q_bias / k_bias / v_bias / o_bias     qwen2
    layers.{i}.q_norm / k_norm     [head_dim]        qwen3, gemma3
    layers.{i}.post_attn_norm, layers.{i}.post_ffn_norm  [d]   gemma3
    layers.{i}.ffn_norm            [d]
    layers.{i}.gate / up           [ffn, d]
    layers.{i}.down                [d, ffn]
    final_norm                     [d]
    lm_head                        [V, d]            absent when tied to embed

Norm weights are stored ready to multiply (gemma's "1 + w" is already added).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

FAMILIES = ("llama", "mistral", "qwen2", "qwen3", "gemma3", "phi3")


@dataclass(frozen=True, slots=True)
class RopeSpec:
    """Rotary embedding. `dim` rotated dimensions of a head (partial rotary: dim < head_dim).

    scaling   how frequencies are stretched; its parameters stand beside it
    factors   longrope: (short, long), each [dim / 2]; llama3 from GGUF: one divisor per frequency in `divisors`
    """

    theta: float
    dim: int
    scaling: Literal["none", "linear", "llama3", "yarn", "longrope"] = "none"
    factor: float = 1.0
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    original_context: int = 0
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    attention_factor: float | None = None
    short_factors: tuple[float, ...] = ()
    long_factors: tuple[float, ...] = ()
    divisors: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """One decoder-only model. `windows[i]` is the sliding window of layer i in positions, 0 = full attention."""

    family: str
    name: str
    vocab_size: int
    hidden_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    ffn_size: int
    norm_eps: float
    context_length: int
    rope: RopeSpec
    windows: tuple[int, ...]
    rope_local: RopeSpec | None = None  # gemma3: layers with a window rotate with this one
    tied_embeddings: bool = True
    qkv_bias: bool = False
    qk_norm: bool = False
    sandwich_norms: bool = False  # gemma3: norms after attention and ffn too
    activation: Literal["silu", "gelu_tanh"] = "silu"
    embed_scale: float = 1.0
    attn_scale: float | None = None  # None: head_dim ** -0.5
    final_softcap: float | None = None


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """A tensor as its file has it.

    format  f32, f16, bf16, or a GGUF block type in lower case (q4_0, q4_1, q8_0, q4_k, ...)
    shape   logical shape, [out, in]
    raw     the stored bytes: for plain formats an array of `shape` (bf16 as uint16), for blocks uint8 [out, row_bytes]
    """

    name: str
    format: str
    shape: tuple[int, ...]
    raw: NDArray[np.generic]

    def f32(self) -> NDArray[np.float32]:
        """The values, dequantised. A fresh array or a view of an f32 file."""
        from medusakit.models.dequant import to_f32  # late: keeps this module free of the gguf package

        return to_f32(self)


class WeightSource(Protocol):
    """An opened model file or folder."""

    @property
    def spec(self) -> ModelSpec: ...

    @property
    def fingerprint(self) -> str:
        """sha256 hex of the weights' content: the same file gives the same string on every machine."""
        ...

    @property
    def default_weights(self) -> str:
        """f32, int8 or int4: the runtime format that keeps this file without loss of what it stores."""
        ...

    def names(self) -> Iterable[str]: ...

    def tensor(self, name: str) -> StoredTensor: ...
