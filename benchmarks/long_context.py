"""T(n) at long contexts, every weight format: python benchmarks/long_context.py --json long_context.json

Milliseconds of one forward pass of n nodes over a cache of that many positions (minimum of repeats).
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from medusakit.bench.circumstances import machine, versions
from medusakit.engine.measure import measure_steps
from medusakit.models.resolve import open_weights, resolve
from medusakit.runtimes.onnx.runtime import load_onnx

SIZES = (1, 2, 4, 8, 16)
CONTEXTS = (256, 1024, 4096, 8192)


def measure(model: str, weights: str, contexts: list[int], seconds: float, threads: int | None) -> dict[str, Any]:
    """{context: {n: ms}}. A context of the model's own limit is measured just below it, so that the nodes fit."""
    runtime = load_onnx(open_weights(resolve(model)), weights=weights, threads=threads)
    limit = runtime.capabilities.max_context
    found = {}
    for context in contexts:
        held = min(context, limit - max(SIZES))
        steps = measure_steps(runtime, sizes=SIZES, context=held, budget_s=seconds, every_size=True)
        found[str(context)] = {str(n): 1e3 * taken for n, taken in steps.seconds.items()}
        print(f"{weights:5}{context:>7}  " + "".join(f"{1e3 * taken:8.1f}" for taken in steps.seconds.values()))
    runtime.close()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--formats", default="f32,int8,int4")
    parser.add_argument("--contexts", default=",".join(map(str, CONTEXTS)))
    parser.add_argument("--seconds", type=float, default=3.0, help="for one context, its prompt apart")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    contexts = [int(text) for text in options.contexts.split(",")]
    print(f"{'':5}{'context':>7}  " + "".join(f"{f'n={n}':>8}" for n in SIZES) + "   ms")
    document = {
        "step_ms": {
            weights: measure(options.model, weights, contexts, options.seconds, options.threads)
            for weights in options.formats.split(",")
        },
        "config": {"model": options.model, "threads": options.threads, "seconds": options.seconds},
        "machine": machine(),
        "versions": versions(),
    }
    if options.json:
        options.json.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
