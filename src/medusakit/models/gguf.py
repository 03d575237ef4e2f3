"""A GGUF file as a WeightSource."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import cached_property
from math import prod
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from medusakit.models.dequant import PLAIN
from medusakit.models.fingerprint import fingerprint_files
from medusakit.models.finite import check_finite
from medusakit.models.gguf_file import GgufFile
from medusakit.models.gguf_spec import spec_from_gguf
from medusakit.models.layout import check_tensors, locate, split_name
from medusakit.models.spec import ModelSpec, StoredTensor

_SCHEME = {
    "embed": "token_embd.weight",
    "attn_norm": "blk.{i}.attn_norm.weight",
    "q": "blk.{i}.attn_q.weight",
    "k": "blk.{i}.attn_k.weight",
    "v": "blk.{i}.attn_v.weight",
    "qkv": "blk.{i}.attn_qkv.weight",
    "q_bias": "blk.{i}.attn_q.bias",
    "k_bias": "blk.{i}.attn_k.bias",
    "v_bias": "blk.{i}.attn_v.bias",
    "q_norm": "blk.{i}.attn_q_norm.weight",
    "k_norm": "blk.{i}.attn_k_norm.weight",
    "o": "blk.{i}.attn_output.weight",
    "post_attn_norm": "blk.{i}.post_attention_norm.weight",
    "ffn_norm": "blk.{i}.ffn_norm.weight",
    "gate": "blk.{i}.ffn_gate.weight",
    "up": "blk.{i}.ffn_up.weight",
    "gate_up": "blk.{i}.ffn_up.weight",
    "down": "blk.{i}.ffn_down.weight",
    "post_ffn_norm": "blk.{i}.post_ffw_norm.weight",
    "final_norm": "output_norm.weight",
    "lm_head": "output.weight",
}
_ROPE_TENSORS = {
    "llama3": ("rope_freqs.weight",),
    "longrope": ("rope_factors_long.weight", "rope_factors_short.weight"),
}
_FOUR_BIT = {"q4_0", "q4_1", "q2_k", "q3_k", "q4_k"}
_MATRICES = ("q", "k", "v", "o", "gate", "up", "down")


class GgufSource:
    """Weights of one GGUF file, memory-mapped, under our names. Raises ModelError if it is not a whole model."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = GgufFile(path)
        self._spec = spec_from_gguf(self._file)
        self._file.metadata.clear()  # the vocabulary (10 to 40 MB of Python strings) is the tokenizer's, not ours
        self._places = locate(self._spec, _SCHEME)
        check_tensors(
            self._spec,
            self._places,
            {name: info.shape for name, info in self._file.tensors.items()},
            ignored=_ROPE_TENSORS.get(self._spec.rope.scaling, ()),
            where=str(path),
        )

    @property
    def spec(self) -> ModelSpec:
        return self._spec

    @cached_property
    def fingerprint(self) -> str:
        return fingerprint_files([self.path])

    @cached_property
    def default_weights(self) -> str:
        """int4 or int8 where every matrix of the layers is stored in blocks, else f32.

        The CPU runtime takes the integers of every GGUF block type as they are, none rounded again: those that fit in 4
        bits at 4, the others at 8 also in its int4 format. So the choice is by what most weights are: int4 where at
        least half of them fit in 4 bits (Q4_0, Q4_1, Q2_K to Q4_K), int8 otherwise (Q5, Q6_K, Q8_0).
        """
        infos = [
            self._file.tensors[stored]
            for stored in {place.stored for name, place in self._places.items() if split_name(name)[1] in _MATRICES}
        ]
        if any(info.format in PLAIN for info in infos):
            return "f32"
        sizes = [(info.format in _FOUR_BIT, prod(info.shape)) for info in infos]
        return "int4" if 2 * sum(size for small, size in sizes if small) >= sum(size for _, size in sizes) else "int8"

    def names(self) -> Iterable[str]:
        return self._places.keys()

    def tensor(self, name: str) -> StoredTensor:
        """One tensor. Raises ModelError where a weight is NaN or infinite."""
        place = self._places[name]
        tensor = place.take(self._file.tensor(place.stored), name)
        check_finite(tensor)
        if split_name(name)[1] in ("q", "k") and self._spec.family in ("llama", "mistral"):
            return replace(tensor, raw=_neox_rows(tensor.raw, self._spec.head_dim))
        return tensor


def _neox_rows(raw: NDArray[np.generic], head_dim: int) -> NDArray[np.generic]:
    """Rows of q or k from llama.cpp's order to ours; a row's stored bytes stay together.

    The converter interleaves the two halves of each head (row 2i from row i, row 2i + 1 from row head_dim / 2 + i),
    because llama.cpp rotates neighbours in this architecture.
    """
    heads = raw.reshape(-1, head_dim // 2, 2, *raw.shape[1:])
    return np.ascontiguousarray(heads.swapaxes(1, 2)).reshape(raw.shape)
