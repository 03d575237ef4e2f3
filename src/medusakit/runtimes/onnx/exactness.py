"""Does a tree's pass give the bits of plain decoding on this processor? Tried on the model itself, once a machine.

Which kernels ONNX Runtime takes depends on the processor: where the 4-bit product for one row adds in another order
than the one for several, int4 is exact only up to numerical ties. The answer is remembered beside the built graph.
"""

from __future__ import annotations

import hashlib
import json
import platform
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import onnxruntime as ort

from medusakit.tree.topology import FloatArray, Topology, Tree

if TYPE_CHECKING:
    from medusakit.runtimes.base import Runtime

_FILE = "bits.json"
_TREE = Topology.from_parents([-1, 0, 0, 1, 2, 2, 4, 6])  # its last path takes second siblings and skips nodes


def bits_are_kept(runtime: Runtime) -> bool:
    """Every node of a path in a tree has exactly the scores of decoding that path one token at a time."""
    random, vocab_size = np.random.default_rng(0), runtime.spec.vocab_size
    prompt, tokens = (random.integers(0, vocab_size, count) for count in (5, _TREE.num_nodes))
    path = _TREE.path(_TREE.num_nodes - 1)
    row = runtime.add_row()
    try:
        runtime.prefill(row, prompt.tolist())
        scores = runtime.forward([(row, Tree(_TREE, tokens))])[0]
        together = [scores.logits(node).copy() for node in path]
        return all(
            np.array_equal(_next_scores(runtime, row, int(tokens[node])), expected)
            for node, expected in zip(path, together, strict=True)
        )
    finally:
        runtime.drop_row(row)


def remembered(folder: Path, threads: int, check: Callable[[], bool]) -> bool:
    """What `check` said on this processor before, else what it says now; no error where it cannot be written down."""
    file, key = folder / _FILE, _machine(threads)
    known: dict[str, bool] = {}
    with suppress(OSError, ValueError):
        known = json.loads(file.read_text())
    if key not in known:
        known[key] = check()
        with suppress(OSError):
            file.write_text(json.dumps(known))
    return known[key]


def _next_scores(runtime: Runtime, row: int, token: int) -> FloatArray:
    scores = runtime.forward([(row, Tree.plain(token))])[0].logits(0)
    runtime.commit(row, [0])
    return scores


def _machine(threads: int) -> str:
    processor = platform.machine() + platform.processor()
    with suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        processor += "".join(sorted({line for line in lines if line.startswith(("model name", "flags"))}))
    return f"{hashlib.sha256(processor.encode()).hexdigest()[:12]}-{ort.__version__}-{threads}"
