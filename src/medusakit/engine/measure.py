"""What a pass and a draft cost on this machine: T(n, context) and T_draft on the real kernels.

Minimum of repeats: anything else that runs on the machine only ever adds time. The measurement takes about two
seconds on the embedded model; what lies between the measured points is the tree/cost module's business.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from medusakit.drafters.base import Drafter, DraftState
from medusakit.runtimes.base import Runtime
from medusakit.tree.topology import FloatArray, Shape, Topology, Tree

SIZES = (1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32, 48, 64)
CONTEXT = 256
BUDGET_S = 1.2
LONG_CONTEXT, LONG_SIZES, LONG_BUDGET_S = 2048, (1, 4, 8, 16, 32), 0.6
TOO_DEAR = 4.0  # times a plain pass
STEADY = 1.15  # second best reading over best
DRAFT_NODES = 16  # of the tree whose draft is timed
Tables = dict[int, dict[int, float]]  # {context: {n: seconds}}


@dataclass(frozen=True, slots=True)
class StepTimes:
    """seconds: {n: T(n)}, ascending. steady: the two best readings of most sizes agree, so the machine was not busy."""

    seconds: dict[int, float]
    steady: bool


def measure_steps(
    runtime: Runtime,
    *,
    sizes: Sequence[int] = SIZES,
    context: int = CONTEXT,
    budget_s: float = BUDGET_S,
    every_size: bool = False,
    clock: Callable[[], float] = time.perf_counter,
) -> StepTimes:
    """Seconds of one forward pass of n nodes over `context` positions.

    Rounds over all sizes repeat until `budget_s` is used up, so that a burst of other work hits few readings of one
    size. Sizes that do not fit the context are left out; so are, unless `every_size` is asked for, those behind one
    that costs several plain passes, which no tree is worth, and those that a slow model leaves no time for.
    """
    limit = runtime.capabilities.max_context
    context = max(1, min(context, limit - 2))
    fitting = [size for size in sizes if context + size <= limit]
    random = np.random.default_rng(0)
    vocab_size = runtime.spec.vocab_size
    row = runtime.add_row()
    try:
        runtime.fill(row, context)
        trees = [bushy(size, random.integers(0, vocab_size, size)) for size in fitting]
        readings: dict[int, list[float]] = {}
        started, rounds = clock(), 0
        while rounds == 0 or (every_size and rounds < 2) or clock() - started < budget_s:
            for size, tree in zip(fitting, trees, strict=True):
                if rounds and size not in readings:
                    break
                before = clock()
                runtime.forward([(row, tree)])
                readings.setdefault(size, []).append(clock() - before)
                dear = readings[size][0] > TOO_DEAR * readings[fitting[0]][0]
                if not every_size and (dear or clock() - started > budget_s):
                    break
            rounds += 1
    finally:
        runtime.drop_row(row)
    times = {size: min(found) for size, found in readings.items()}
    return StepTimes(_rising(times), _steady(list(readings.values())))


def _steady(readings: Sequence[Sequence[float]]) -> bool:
    """Whether the two best readings of most sizes agree."""
    spreads = [sorted(found)[1] / min(found) if len(found) > 1 else float("inf") for found in readings]
    return float(np.median(spreads)) < STEADY


def _rising(seconds: Mapping[int, float]) -> dict[int, float]:
    """No size dearer than a larger one: a pass can be padded, so such a reading was only unlucky.

    >>> _rising({1: 3.0, 2: 2.0, 4: 4.0})
    {1: 2.0, 2: 2.0, 4: 4.0}
    """
    sizes = sorted(seconds)
    return {size: min(seconds[other] for other in sizes if other >= size) for size in sizes}


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


def draft_seconds(
    drafter: Drafter, topology: Topology, hidden_size: int, *, clock: Callable[[], float] = time.perf_counter
) -> FloatArray:
    """[num_nodes] seconds of one draft of the first n nodes, at n - 1.

    A draft goes level by level, so its time is taken as proportional to the levels; measured once, at DRAFT_NODES.
    """
    measured = topology.prefix(DRAFT_NODES)
    if measured.num_nodes == 1:
        return np.zeros(topology.num_nodes, np.float32)
    taken = measure_draft(drafter, measured, hidden_size, clock=clock)
    levels = np.maximum.accumulate(topology.depths)
    return (taken * levels / measured.max_depth).astype(np.float32)


def bushy(num_nodes: int, tokens: np.ndarray) -> Tree:
    """A tree of n nodes with about the shape of a calibrated one: node i hangs under node (i - 1) // 2."""
    topology = Topology.from_parents([-1, *((node - 1) // 2 for node in range(1, num_nodes))])
    return Tree(topology, tokens.astype(np.int64))


def measure_cost(runtime: Runtime) -> tuple[Tables, bool]:
    """T(n, context) at a short and, as far as the model goes, a long context; and whether the machine was not busy."""
    limit = runtime.capabilities.max_context
    short = min(CONTEXT, max(1, limit - 2))
    near = measure_steps(runtime, context=short)
    far = min(LONG_CONTEXT, limit - max(LONG_SIZES))
    if far < 2 * short:
        return {short: near.seconds}, near.steady
    found = measure_steps(runtime, sizes=LONG_SIZES, context=far, budget_s=LONG_BUDGET_S)
    return {short: near.seconds, far: found.seconds}, near.steady and found.steady
