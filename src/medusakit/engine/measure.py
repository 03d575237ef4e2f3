"""What a pass costs on this machine: T(n, context) on the real kernels, measured at load and remembered.

Minimum of repeats: anything else that runs on the machine only ever adds time. The measurement takes about two
seconds on the embedded model; what lies between the measured points is the tree/cost module's business.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from medusakit.drafters.base import Drafter, DraftState, Shape
from medusakit.models.home import home
from medusakit.runtimes.base import Capabilities, Runtime
from medusakit.tree.cost import StepCost
from medusakit.tree.topology import FloatArray, Topology, Tree

SIZES = (1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32, 48, 64)
CONTEXT = 256
BUDGET_S = 1.2
LONG_CONTEXT, LONG_SIZES, LONG_BUDGET_S = 2048, (1, 4, 8, 16, 32), 0.6
TOO_DEAR = 4.0  # times a plain pass
STEADY = 1.15  # second best reading over best
FRESH_S = 600.0  # that a table of a busy machine is good for
DRAFT_NODES = 16  # of the tree whose draft is timed
Tables = dict[int, dict[int, float]]  # {context: {n: seconds}}
FASTER = 0.8  # today's T(n) over the remembered one
BENT = 1.12  # today's T(8) / T(1) over the remembered one, or the other way round
PROBED = 1, 8  # of which sizes
PROBE_S = 0.15
METHOD = "3"  # of measuring: a table that another one gave is not used


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


def remembered_cost(
    runtime: Runtime, fingerprint: str, threads: int, clock: Callable[[], float] = time.time
) -> StepCost:
    """T(n, context) from MEDUSA_HOME, measured if it is not there: per machine, model, weights, threads and version.

    A table that a busy machine gave is good for ten minutes. One that today's T(n) beats clearly is measured anew, and
    so is one that rises otherwise (how dear nodes are beside a plain pass decides the budgets). A cache that cannot be
    read or written only costs the time of measuring.
    """
    file = home() / "cost" / f"{_key(runtime, fingerprint, threads)}.json"
    known = _read(file, clock())
    if known and not _outdated(runtime, known):
        return StepCost(known)
    measured, steady = measure_cost(runtime)
    if known and not steady and not _beats(measured[min(known)], known[min(known)]):
        return StepCost(known)  # the machine is busy: what a quiet one said is worth more
    _write(file, {"tables": measured, "steady": steady, "time": clock()})
    return StepCost(measured)


@dataclass(slots=True)
class CostWatch:
    """Keeps T(n) true in a process that lives long: called where nothing is decoded, it looks as `remembered_cost` does
    whether the table still holds, once in FRESH_S at most. That takes PROBE_S, and the time of measuring if not.

    cost    what is kept true
    looked  Unix time of the last look
    """

    runtime: Runtime
    fingerprint: str
    threads: int
    cost: StepCost
    clock: Callable[[], float] = time.time
    looked: float = field(init=False)

    def __post_init__(self) -> None:
        self.looked = self.clock()

    def __call__(self) -> None:
        if self.clock() - self.looked >= FRESH_S:
            self.looked = self.clock()
            self.cost.adopt(remembered_cost(self.runtime, self.fingerprint, self.threads, self.clock))


def _outdated(runtime: Runtime, known: Tables) -> bool:
    """Whether plain passes or those of a small tree are clearly faster today, or stand otherwise to each other."""
    table = known[min(known)]
    today = measure_steps(runtime, sizes=PROBED, context=min(known), budget_s=PROBE_S).seconds
    changes = [seconds / table[size] for size, seconds in today.items() if size in table]
    return _beats(today, table) or max(changes) > BENT * min(changes)


def _beats(new: Mapping[int, float], old: Mapping[int, float]) -> bool:
    """Whether passes of any size in both are clearly faster."""
    return any(seconds < FASTER * old[size] for size, seconds in new.items() if size in old)


def _key(runtime: Runtime, fingerprint: str, threads: int) -> str:
    from importlib.metadata import version

    facts = [
        METHOD,
        fingerprint,
        runtime.capabilities.weights,
        str(threads),
        type(runtime).__name__,
        *_device(runtime.capabilities),
        version("onnxruntime"),
        version("medusakit"),
        machine_name(),
    ]
    return hashlib.sha256("\n".join(facts).encode()).hexdigest()[:32]


def _device(found: Capabilities) -> list[str]:
    """Beside the machine's name, where something else computes."""
    return [] if found.device == "cpu" else [found.device, found.eager]


def machine_name() -> str:
    """CPU model and number of usable cores."""
    model = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.is_file():
        lines = cpuinfo.read_text().splitlines()
        names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
        model = names[0] if names else model
    return f"{model} x{os.cpu_count()}"


def _read(file: Path, now: float) -> Tables | None:
    try:
        stored = json.loads(file.read_text())
        tables = {
            int(context): {int(size): float(seconds) for size, seconds in table.items()}
            for context, table in stored["tables"].items()
        }
        if not stored["steady"] and not 0 <= now - stored["time"] < FRESH_S:
            return None
    except (OSError, ValueError, AttributeError, TypeError, KeyError):
        return None
    sound = all(context > 0 and 1 in table and _is_sound(table) for context, table in tables.items())
    return tables if tables and sound else None


def _is_sound(table: Mapping[int, float]) -> bool:
    return all(size > 0 and 0 < seconds < float("inf") for size, seconds in table.items())


def _write(file: Path, document: Mapping[str, object]) -> None:
    temporary = file.with_suffix(f".{os.getpid()}")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_text(json.dumps(document))
        temporary.replace(file)
    except OSError:
        with suppress(OSError):
            temporary.unlink()
