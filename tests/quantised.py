"""Random stored blocks of every quantised format, for tests of what reads them."""

from __future__ import annotations

import numpy as np

from medusakit.models.dequant import BLOCKS
from medusakit.models.spec import StoredTensor

# byte offsets of float16 fields: random bytes elsewhere are all legal, here they must be finite
HALVES = {
    "q2_k": (80, 82),
    "q3_k": (108,),
    "q4_k": (0, 2),
    "q5_k": (0, 2),
    "q6_k": (208,),
    "q4_1": (0, 2),
    "q5_1": (0, 2),
}


def random_blocks(format: str, *, name: str = "w", columns: int = 3, seed: int = 0) -> StoredTensor:
    """Five rows of `columns` blocks each."""
    values, size = BLOCKS[format]
    rng = np.random.default_rng(seed)
    raw = rng.integers(0, 256, (5, columns, size), dtype=np.uint8)
    for offset in HALVES.get(format, (0,)):
        raw[..., offset : offset + 2] = rng.normal(size=(5, columns, 1)).astype(np.float16).view(np.uint8)
    return StoredTensor(name, format, (5, columns * values), raw.reshape(5, -1))
