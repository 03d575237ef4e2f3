"""A stand-in for a CUDA graph on the CPU: the tensor operations of one call, recorded and replayed.

Like a graph, a replay runs no Python of the model again: what the host knew at the capture (numbers, branches, which
buffers) stays, and only what tensors hold can change the outcome. What a graph cannot hold is refused at the capture:
reading a value back, shapes that depend on values, tensors made from the host's numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_unflatten

REFUSED = (
    "_local_scalar_dense", "item", "is_nonzero", "equal", "resolve_neg",  # a value is read (the last: tolist, numpy)
    "nonzero", "masked_select", "_unique2", "unique_dim",  # a shape depends on values
    "lift_fresh",  # a number of the host's is copied to the device
)  # fmt: skip


class _Recorder(TorchDispatchMode):
    """calls: function, its arguments flattened and how they were nested, and the tensors among its results. What an
    earlier call made stands in the arguments as its place among all results."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[Any, list[Any], Any]] = []
        self._places: dict[int, int] = {}
        self._kept: list[Any] = []  # so that no identity is given twice

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = str(func).removeprefix("aten.")
        if name.split(".")[0] in REFUSED or name.startswith("where.Scalar") or _by_bools(name, args):
            raise RuntimeError(f"operation {name} is not permitted when stream is capturing")
        flat, nesting = tree_flatten((args, kwargs or {}))
        flat = [_Place(self._places[id(part)]) if id(part) in self._places else part for part in flat]
        out = func(*args, **(kwargs or {}))
        made = [part if isinstance(part, torch.Tensor) else None for part in tree_flatten(out)[0]]
        self._kept += made
        self._places.update(
            (id(part), len(self._kept) - len(made) + i) for i, part in enumerate(made) if part is not None
        )
        self.calls.append((func, flat, nesting))
        return out


class _Place(int):
    """Of a result among all results."""


def _by_bools(name: str, args: Any) -> bool:
    """Indexing by a mask: how much it selects depends on values."""
    return name.startswith("index") and any(
        isinstance(part, torch.Tensor) and part.dtype == torch.bool for part in tree_flatten(args[1])[0]
    )


class Recording:
    """`capture` of a runtime: `capture(work)` runs the work once, to record it. num_captures, num_replays: so far."""

    def __init__(self) -> None:
        self.num_captures = self.num_replays = 0

    def __call__(self, work: Callable[[], None]) -> Callable[[], None]:
        recorder = _Recorder()
        with recorder:
            work()
        self.num_captures += 1

        def replay() -> None:
            self.num_replays += 1
            with torch.inference_mode():
                _replay(recorder.calls)

        return replay


def _replay(calls: list[tuple[Any, list[Any], Any]]) -> None:
    results: list[Any] = []
    for func, flat, nesting in calls:
        args, kwargs = tree_unflatten([results[part] if type(part) is _Place else part for part in flat], nesting)
        results += tree_flatten(func(*args, **kwargs))[0]
