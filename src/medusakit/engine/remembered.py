"""T(n, context) of a model here, remembered in MEDUSA_HOME and measured (measure.py) where that is no longer true."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path

from medusakit.artifact.files import write_atomic
from medusakit.engine.measure import Tables, measure_cost, measure_steps
from medusakit.errors import RuntimeFailure
from medusakit.machine import machine_name
from medusakit.models.home import home
from medusakit.runtimes.base import Capabilities, Runtime
from medusakit.tree.cost import StepCost

FRESH_S = 600.0  # that a table of a busy machine is good for
FASTER = 0.8  # today's T(n) over the remembered one
BENT = 1.12  # today's T(8) / T(1) over the remembered one, or the other way round
PROBED = 1, 8  # of which sizes
PROBE_S = 0.15
METHOD = "3"  # of measuring: a table that another one gave is not used


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
    with suppress(OSError, RuntimeFailure):
        file.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(file, json.dumps(document).encode())
