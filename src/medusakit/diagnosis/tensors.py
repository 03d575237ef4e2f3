"""Faults that show in the tensors of heads alone: what was never trained, what was lost, what is the same twice."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from medusakit.diagnosis.findings import Finding

Tensors = Mapping[str, NDArray[Any]]
TRAIN = "medusa train all -m MODEL --out ./heads"
_BIASES = ("bias", "depth")  # `depth` is the bias of each depth, in the families with one cell for all of them
_PER_DEPTH = ("blocks.", "depth")


def is_bias(name: str) -> bool:
    return name.endswith(_BIASES)


def tensor_findings(tensors: Tensors) -> Iterator[Finding]:
    floats = {name: value for name, value in tensors.items() if np.issubdtype(value.dtype, np.floating)}
    yield from _untrained(floats)
    yield from _biases(floats)
    yield from _tied(floats)


def _untrained(tensors: Tensors) -> Iterator[Finding]:
    """Weights start at zero, and one step of training moves them."""
    zero = [place for name, value in tensors.items() if not is_bias(name) for place in _zero_parts(name, value)]
    if zero:
        evidence = f"all zero, as before training: {', '.join(zero)}"
        yield Finding("untrained", "error", evidence, TRAIN)


def _zero_parts(name: str, value: NDArray[Any]) -> Iterator[str]:
    if not value.any():
        yield name
    elif name.startswith("blocks."):
        yield from (f"{name} of head {head}" for head in range(len(value)) if not value[head].any())


def _biases(tensors: Tensors) -> Iterator[Finding]:
    """A bias that stayed zero while its weights moved was lost on the way (dropped by a converter, not stored)."""
    if not any(value.any() for name, value in tensors.items() if not is_bias(name)):
        return
    for name, value in tensors.items():
        heads = [head for head in range(len(value)) if not value[head].any()] if value.ndim == 2 else []
        if is_bias(name) and (heads or not value.any()):
            which = f" of heads {', '.join(map(str, heads))}" if heads else ""
            yield Finding(
                "missing-biases",
                "error",
                f"{name}{which} is all zero, though the weights are not",
                "convert the heads again with their biases, or train them again: " + TRAIN,
            )


def _tied(tensors: Tensors) -> Iterator[Finding]:
    """Equal heads, or equal blocks of one head: one module that stood in the list several times."""
    pairs = []
    for name, value in tensors.items():
        if name.startswith(_PER_DEPTH) and not name.endswith("bias"):
            pairs += [
                f"heads {a} and {b} in {name}"
                for a, b in combinations(range(len(value)), 2)
                if value[a].any() and np.array_equal(value[a], value[b])
            ]
    blocks = [name for name in tensors if name.startswith("blocks.") and name.endswith("weight")]
    pairs += [f"{a} and {b}" for a, b in combinations(blocks, 2) if _same(tensors[a], tensors[b])]
    if pairs:
        evidence = f"equal to the last bit: {'; '.join(pairs[:4])}"
        yield Finding("tied-blocks", "error", evidence, "train with a module of its own for every block: " + TRAIN)


def _same(left: NDArray[Any], right: NDArray[Any]) -> bool:
    return bool(left.any()) and np.array_equal(left, right)
