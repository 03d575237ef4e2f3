"""Heads made worse on purpose, in memory: what bad heads cost is measured with them, never trained or written."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from medusakit.artifact.fits import DRAFT_IDS
from medusakit.artifact.io import Artifact

Array = NDArray[np.generic]
Floats = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Altered(Artifact):
    """An artifact whose tensors are given instead of read; manifest and tree are the original's."""

    altered: Mapping[str, Array]

    def tensors(self) -> dict[str, Array]:
        return dict(self.altered)


def noisy(artifact: Artifact, strength: float, *, seed: int = 0) -> Altered:
    """Normal noise on every weight: `strength` times the standard deviation of its tensor."""

    def change(value: Floats, random: np.random.Generator) -> Any:
        return value + strength * value.std() * random.standard_normal(value.shape)

    return _altered(artifact, change, seed)


def shuffled(artifact: Artifact, *, seed: int = 0) -> Altered:
    """The weights of every tensor in random order: heads that know nothing, of the same size and cost."""

    def change(value: Floats, random: np.random.Generator) -> Any:
        return random.permutation(value.reshape(-1)).reshape(value.shape)

    return _altered(artifact, change, seed)


def _altered(artifact: Artifact, change: Callable[[Floats, np.random.Generator], Any], seed: int) -> Altered:
    random = np.random.default_rng(seed)
    tensors = {
        name: value if name == DRAFT_IDS else np.asarray(change(value.astype(np.float32), random), np.float16)
        for name, value in sorted(artifact.tensors().items())
    }
    return Altered(artifact.path, artifact.manifest, artifact.tree, tensors)
