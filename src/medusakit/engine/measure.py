"""What a pass costs on this machine: T(n) on the real kernels, measured at load and remembered.

Minimum of repeats: anything else that runs on the machine only ever adds time. The measurement takes under two
seconds on the embedded model; sizes between the measured ones are the tree/cost module's business.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from medusakit.drafters.base import Drafter, DraftState, Shape
from medusakit.models.home import home
from medusakit.runtimes.base import Runtime
from medusakit.tree.topology import Topology, Tree

SIZES = (1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32, 48, 64)
CONTEXT = 256
BUDGET_S = 1.5


def measure_steps(
    runtime: Runtime,
    *,
    sizes: Sequence[int] = SIZES,
    context: int = CONTEXT,
    budget_s: float = BUDGET_S,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[int, float]:
    """Seconds of one forward pass of n nodes over `context` positions: {n: T(n)}, ascending.

    Rounds over all sizes repeat until `budget_s` is used up (two at least), so that a burst of other work hits few
    readings of one size. Sizes that do not fit the context are left out.
    """
    limit = runtime.capabilities.max_context
    context = max(1, min(context, limit - 2))
    fitting = [size for size in sizes if context + size <= limit]
    random = np.random.default_rng(0)
    vocab_size = runtime.spec.vocab_size
    row = runtime.add_row()
    try:
        runtime.prefill(row, random.integers(0, vocab_size, context).tolist())
        trees = [bushy(size, random.integers(0, vocab_size, size)) for size in fitting]
        best = dict.fromkeys(fitting, float("inf"))
        started, rounds = clock(), 0
        while rounds < 2 or clock() - started < budget_s:
            for size, tree in zip(fitting, trees, strict=True):
                before = clock()
                runtime.forward([(row, tree)])
                best[size] = min(best[size], clock() - before)
            rounds += 1
    finally:
        runtime.drop_row(row)
    return best


def measure_draft(
    drafter: Drafter,
    shape: Shape,
    hidden_size: int,
    *,
    repeats: int = 10,
    clock: Callable[[], float] = time.perf_counter,
) -> float:
    """Seconds of one `propose` for one row (minimum of repeats)."""
    state = DraftState(0, 0, np.zeros(hidden_size, dtype=np.float32), (0,))
    best = float("inf")
    for _ in range(repeats):
        before = clock()
        drafter.propose([state], shape)
        best = min(best, clock() - before)
    return best


def bushy(num_nodes: int, tokens: np.ndarray) -> Tree:
    """A tree of n nodes with about the shape of a calibrated one: node i hangs under node (i - 1) // 2."""
    topology = Topology.from_parents([-1, *((node - 1) // 2 for node in range(1, num_nodes))])
    return Tree(topology, tokens.astype(np.int64))


def remembered_steps(runtime: Runtime, fingerprint: str, threads: int, *, again: bool = False) -> dict[int, float]:
    """`measure_steps`, kept in MEDUSA_HOME per machine, model, weights, threads and runtime version.

    A cache that cannot be read or written only costs the time of measuring.
    """
    file = home() / "cost" / f"{_key(runtime, fingerprint, threads)}.json"
    if not again and (known := _read(file)):
        return known
    measured = measure_steps(runtime)
    _write(file, measured)
    return measured


def _key(runtime: Runtime, fingerprint: str, threads: int) -> str:
    from importlib.metadata import version

    facts = [
        fingerprint,
        runtime.capabilities.weights,
        str(threads),
        str(runtime.capabilities.max_rows),
        type(runtime).__name__,
        version("onnxruntime"),
        version("medusakit"),
        machine_name(),
    ]
    return hashlib.sha256("\n".join(facts).encode()).hexdigest()[:32]


def machine_name() -> str:
    """CPU model and number of usable cores."""
    model = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.is_file():
        lines = cpuinfo.read_text().splitlines()
        names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
        model = names[0] if names else model
    return f"{model} x{os.cpu_count()}"


def _read(file: Path) -> dict[int, float] | None:
    try:
        return {int(size): float(seconds) for size, seconds in json.loads(file.read_text()).items()}
    except (OSError, ValueError, AttributeError):
        return None


def _write(file: Path, measured: dict[int, float]) -> None:
    temporary = file.with_suffix(f".{os.getpid()}")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_text(json.dumps(measured))
        temporary.replace(file)
    except OSError:
        temporary.unlink(missing_ok=True)
