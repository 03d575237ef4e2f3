"""What rows and kept prefixes leave, filled with NaN, changes no score and no answer of those that stay or come."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine_fakes import LetterTokenizer
from medusakit.engine.controller import PlainController
from medusakit.engine.engine import Engine
from medusakit.engine.jobs import Job, SchedulerSettings
from medusakit.engine.scheduler import Scheduler
from medusakit.models.resolve import open_weights, resolve
from medusakit.runtimes.onnx import kv
from medusakit.runtimes.onnx.runtime import OnnxRuntime, load_onnx
from medusakit.settings import SamplingParams
from medusakit.tree.topology import Tree
from scheduler_fakes import FakeLLM, run, submit
from tiny import write_hf

STAYS, LEAVES, COMES = [5, 9, 2, 7, 1], [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8], [2, 7, 1, 8, 2, 8]
TREE = Tree.plain(4)


def load(folder: Path, max_context: int = 64) -> OnnxRuntime:
    source = open_weights(resolve(str(folder)))
    cache = folder / "graphs"
    return load_onnx(source, weights="f32", threads=1, max_rows=3, max_context=max_context, cache_dir=cache)


def scores(runtime: OnnxRuntime, *, poison: bool) -> list[np.ndarray]:
    """A row leaves another that stays, its cells are filled with NaN or not, and a third takes its place."""
    first, second = runtime.add_row(), runtime.add_row()
    runtime.prefill(first, LEAVES)
    runtime.prefill(second, STAYS)
    runtime.drop_row(first)
    if poison:
        cache, slot = runtime._kv, 1  # the second row has moved to slot 0
        written = cache._written[slot]
        assert written > 0 and np.any(cache.keys[:, slot, :, :, :written])
        for memory in (cache.keys, cache.values):
            memory[:, slot, :, :, :written] = np.nan
    found = [runtime.forward([(second, TREE)])[0].logits(0).copy()]
    runtime.commit(second, [0])
    third = runtime.add_row()
    found.append(runtime.prefill(third, COMES).logits(0).copy())
    found += [one.logits(0).copy() for one in runtime.forward([(second, TREE), (third, TREE)])]
    for row in (second, third):
        runtime.drop_row(row)
    return found


def test_freed_cells_are_out_of_reach(tmp_path: Path) -> None:
    runtime = load(write_hf(tmp_path / "m", "llama", seed=3))
    clean = scores(runtime, poison=False)
    poisoned = scores(runtime, poison=True)
    runtime.close()
    for before, after in zip(clean, poisoned, strict=True):
        assert np.all(np.isfinite(before)) and np.array_equal(before, after)


def jobs() -> Iterator[Job]:
    """Short ones and, now and then, long ones, so that the KV memory is laid out anew in both directions."""
    random = np.random.default_rng(5)
    for place in range(24):
        prompt = random.integers(1, 128, 190 if place % 6 == 3 else random.integers(1, 30)).tolist()
        params = SamplingParams(max_tokens=4 + place % 9, temperature=(0.0, 0.9)[place % 2], seed=place)
        yield Job((*LEAVES[: place % 5], *prompt), params, key="AB"[place % 2])


class Poison:
    """Fills with NaN what a row leaves, as soon as it has left, and every prefix that is evicted."""

    def __init__(self, runtime: OnnxRuntime, scheduler: Scheduler) -> None:
        self._runtime, self._drop = runtime, runtime.drop_row
        self._cache = scheduler._batch.cache
        self._evict = self._cache._evict
        self.rows = self.behind = self.prefixes = 0

    def drop_row(self, row: int) -> None:
        self._drop(row)
        cache = self._runtime._kv
        for laid, memory in ((cache.keys, cache._memory.keys), (cache.values, cache._memory.values)):
            for slot in range(len(self._runtime.rows), cache.num_slots):
                laid[:, slot, ..., : cache._written[slot], :] = np.nan
                self.rows += cache._written[slot] > 0
            memory[laid.size :] = np.nan
            self.behind += len(memory) > laid.size > 0

    def evict(self, entry: Any) -> None:
        self._evict(entry)
        for array in entry.memory.arrays:
            array[...] = np.nan
        self.prefixes += 1


def answers(runtime: OnnxRuntime, monkeypatch: pytest.MonkeyPatch | None) -> tuple[list[list[int]], Poison]:
    engine = Engine(runtime, LetterTokenizer(), PlainController())
    kept = SchedulerSettings(max_rows=3, prefill_chunk=32, cache_bytes=400_000, cache_least_tokens=1)
    scheduler = Scheduler(FakeLLM(engine), kept)
    poison = Poison(runtime, scheduler)
    if monkeypatch is not None:
        monkeypatch.setattr(runtime, "drop_row", poison.drop_row)
        monkeypatch.setattr(scheduler._batch.cache, "_evict", poison.evict)
    listening = [submit(scheduler, job) for job in jobs()]
    run(scheduler)
    scheduler.close()
    return [one.tokens for one in listening], poison


def test_answers_in_company_stay_when_all_that_others_left_is_nan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kv, "KEPT_BYTES", 1 << 20)  # all that lies behind the rows is filled each time
    runtime = load(write_hf(tmp_path / "m", "llama", seed=3), max_context=256)
    clean, _ = answers(runtime, None)
    poisoned, poison = answers(runtime, monkeypatch)
    runtime.close()
    assert poisoned == clean and len({tuple(one) for one in clean}) > 12
    assert poison.rows > 5 and poison.behind > 5 and poison.prefixes > 5, "too little was poisoned to tell"
