"""T(n) of the CPU runtime: milliseconds of one forward pass of n nodes, by weight format and context.

    python benchmarks/cpu_step.py -m smollm2 --weights f32,int8,int4 --context 256 --json out.json

Formats are interleaved, so that a slow phase of the machine hits all of them; medians and the lower fifth are printed.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import time
from pathlib import Path
from typing import Any

import numpy as np

from medusakit.models.resolve import open_weights, resolve
from medusakit.runtimes.onnx.runtime import OnnxRuntime, load_onnx
from medusakit.tree.topology import Topology, Tree

NODES = (1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 24, 32)


def main() -> None:
    options = _options()
    source = open_weights(resolve(options.model))
    formats = options.weights.split(",")
    runtimes = {name: load_onnx(source, weights=name, threads=options.threads) for name in formats}
    table: dict[str, Any] = {name: {} for name in formats}
    rows = {name: _filled(runtime, options.context) for name, runtime in runtimes.items()}
    print("weights".ljust(10), *(f"{n:>11}" for n in NODES))
    for n in NODES:
        taken = _interleaved(runtimes, rows, n, options.repeats)
        for name, times in taken.items():
            fifth = float(np.quantile(times, 0.2))
            table[name][str(n)] = {"median_ms": statistics.median(times), "fifth_ms": fifth, "min_ms": min(times)}
    for name in formats:
        print(name.ljust(10), *(f"{cell['fifth_ms']:5.1f}/{cell['median_ms']:5.1f}" for cell in table[name].values()))
    if options.json:
        told = {"step_ms": table, "context": options.context, "model": options.model, "machine": platform.processor()}
        options.json.write_text(json.dumps(told, indent=1))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("-m", "--model", default="smollm2")
    parser.add_argument("--weights", default="f32,int8,int4")
    parser.add_argument("--context", type=int, default=256)
    parser.add_argument("--threads", type=int, default=None)
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--json", type=Path, default=None)
    return parser.parse_args()


def _filled(runtime: OnnxRuntime, context: int) -> int:
    row = runtime.add_row()
    runtime.prefill(row, np.random.default_rng(0).integers(5, 5000, context).tolist())
    return row


def _interleaved(
    runtimes: dict[str, OnnxRuntime], rows: dict[str, int], n: int, repeats: int
) -> dict[str, list[float]]:
    """Milliseconds by format; a bushy tree of n nodes, the same for all."""
    topology = Topology.from_parents([-1, *((node - 1) // 2 for node in range(1, n))])
    tree = Tree(topology, np.random.default_rng(n).integers(5, 5000, n))
    taken: dict[str, list[float]] = {name: [] for name in runtimes}
    for repeat in range(repeats + 1):
        for name, runtime in runtimes.items():
            for _ in range(2):
                start = time.perf_counter()
                runtime.forward([(rows[name], tree)])
                if repeat:
                    taken[name].append(1e3 * (time.perf_counter() - start))
    return taken


if __name__ == "__main__":
    main()
