"""Heads as the attention kernel wants them: sizes in multiples of 16, rotated halves in multiples of 8.

Usual models fit as they are. Others (small heads, odd partial rotations) are spread over a larger head whose extra
dimensions are zero, which changes no score.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from medusakit.models.spec import ModelSpec, StoredTensor
from medusakit.tree.topology import FloatArray, IntArray


@dataclass(frozen=True, slots=True)
class HeadLayout:
    """Where a model's head sits in the kernel's.

    size    dimensions of the kernel's head
    places  [head_dim], the model's dimensions in it
    half    rotated pairs, padded
    """

    size: int
    places: IntArray
    half: int

    @classmethod
    def of(cls, spec: ModelSpec) -> HeadLayout:
        pairs, rest = spec.rope.dim // 2, spec.head_dim - spec.rope.dim
        half = _up(pairs, 8)
        places = np.concatenate([np.arange(pairs), half + np.arange(pairs), 2 * half + np.arange(rest)])
        return cls(_up(2 * half + rest, 16), places, half)

    @property
    def is_plain(self) -> bool:
        return self.size == len(self.places)

    def spread(self, tensor: StoredTensor) -> StoredTensor:
        """The same weight with zero rows between: [heads * head_dim, ...] to [heads * size, ...], in any stored format
        (a block of zero bytes is a block of zeros in every one of them)."""
        if self.is_plain:
            return tensor
        raw = tensor.raw
        heads = raw.reshape(-1, len(self.places), *raw.shape[1:])
        wide = np.zeros((len(heads), self.size, *raw.shape[1:]), raw.dtype)
        wide[:, self.places] = heads
        rows = wide.reshape(-1, *raw.shape[1:])
        return replace(tensor, raw=rows, shape=(len(rows), *tensor.shape[1:]))

    def spread_norm(self, weight: FloatArray) -> FloatArray:
        """A head's norm weight for the larger head. Its mean square counts the zeros too, so it is smaller by
        head_dim / size; the weight (and the norm's epsilon: `norm_share`) make up for it."""
        wide = np.zeros(self.size, np.float32)
        wide[self.places] = weight * np.float32(self.norm_share**0.5)
        return wide

    @property
    def norm_share(self) -> float:
        return len(self.places) / self.size


def _up(value: int, multiple: int) -> int:
    return -(-value // multiple) * multiple
