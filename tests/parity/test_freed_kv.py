"""Cells of rows that left, filled with NaN, change no score of the rows that stay or come."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from medusakit.models.resolve import open_weights, resolve
from medusakit.runtimes.onnx.runtime import OnnxRuntime, load_onnx
from medusakit.tree.topology import Tree
from tiny import write_hf

STAYS, LEAVES, COMES = [5, 9, 2, 7, 1], [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8], [2, 7, 1, 8, 2, 8]
TREE = Tree.plain(4)


def load(folder: Path) -> OnnxRuntime:
    source = open_weights(resolve(str(folder)))
    return load_onnx(source, weights="f32", threads=1, max_rows=3, max_context=64, cache_dir=folder / "graphs")


def scores(runtime: OnnxRuntime, *, poison: bool) -> list[np.ndarray]:
    """A row leaves another that stays, its cells are filled with NaN or not, and a third takes its place."""
    first, second = runtime.add_row(), runtime.add_row()
    runtime.prefill(first, LEAVES)
    runtime.prefill(second, STAYS)
    runtime.drop_row(first)
    if poison:
        kv, slot = runtime._kv, 1  # the second row has moved to slot 0
        written = kv._written[slot]
        assert written > 0 and np.any(kv.keys[:, slot, :, :, :written])
        for memory in (kv.keys, kv.values):
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
