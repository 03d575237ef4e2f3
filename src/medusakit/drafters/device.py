"""What drafters need that run on the model's device: their own graph, and a place in the graph of the step.

A step in which greedy decoding goes on as the device found it brings the next draft with its one read. Where it does
not (after a prompt, when sampling took another path, when other heads have the place) the draft runs by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from medusakit.drafters.base import DraftState
from medusakit.runtimes.torch.device.buckets import rows_bucket
from medusakit.runtimes.torch.device.runtime import DeviceRuntime
from medusakit.runtimes.torch.device.step import Ints32, Reader


class DeviceDraft:
    """Numbers that a reader gives for rows, from the last step if it brought them.

    reader  the network with all that it reads: no reference to the drafter, so that heads that are swapped out leave
    """

    def __init__(self, runtime: DeviceRuntime, reader: Reader) -> None:
        self._runtime, self._reader = runtime, reader
        self._graphs = runtime.new_graphs()
        self._alone: dict[int, _Alone] = {}

    def numbers(self, states: Sequence[DraftState]) -> Ints32:
        """[rows, width] int32."""
        if self._runtime.attach(self._reader):
            known = [self._known(state) for state in states]
            found = [numbers for numbers in known if numbers is not None]
            if len(found) == len(states):
                return np.stack(found)
        return self._drafted(states)

    def _known(self, state: DraftState) -> Ints32 | None:
        """What the row's last step said, if the answer goes on as it expected."""
        told = self._runtime.told(state.row)
        same = told is not None and tuple(state.ids[told.start :]) == told.ids
        return told.numbers if told is not None and same else None

    def _drafted(self, states: Sequence[DraftState]) -> Ints32:
        rows = rows_bucket(len(states), max(len(states), self._runtime.capabilities.max_rows))
        if rows not in self._alone:
            self._alone[rows] = _Alone(self._reader, rows, self._runtime)
        work = self._alone[rows]
        work.write(states)
        self._graphs.run(rows, work)
        return work.read()[: len(states)]


class _Alone:
    """A draft of so many rows by itself, in buffers that stay where they are."""

    def __init__(self, reader: Reader, rows: int, runtime: DeviceRuntime) -> None:
        device, size = runtime.model.device, runtime.model.hidden_size
        self._reader, self._dtype = reader, runtime.model.dtype
        self._host_hidden, self._hidden = _pair(device, torch.float32, rows, size)
        self._host_roots, self._roots = _pair(device, torch.int64, rows)
        self._host_result, self._result = _pair(device, torch.int32, rows, reader.width)

    def write(self, states: Sequence[DraftState]) -> None:
        self._host_hidden.numpy()[: len(states)] = [state.hidden for state in states]
        self._host_roots.numpy()[: len(states)] = [state.root_id for state in states]
        self._hidden.copy_(self._host_hidden, non_blocking=True)
        self._roots.copy_(self._host_roots, non_blocking=True)

    @torch.inference_mode()  # type: ignore[untyped-decorator]
    def __call__(self) -> None:
        self._result.copy_(self._reader(self._hidden.to(self._dtype), self._roots))

    def read(self) -> Ints32:
        self._host_result.copy_(self._result)
        return np.array(self._host_result.numpy())


def _pair(device: Any, dtype: Any, *shape: int) -> tuple[Any, Any]:
    """Zeros on the host and on the device."""
    pinned = device.type == "cuda"
    return torch.zeros(shape, dtype=dtype, pin_memory=pinned), torch.zeros(shape, dtype=dtype, device=device)


def on_device(array: np.ndarray[Any, Any], runtime: DeviceRuntime) -> Any:
    """In the model's own type, which drafts are computed in."""
    return torch.from_numpy(np.ascontiguousarray(array)).to(device=runtime.model.device, dtype=runtime.model.dtype)


def loaded(make: Callable[[], Any], tensors: dict[str, np.ndarray[Any, Any]], runtime: DeviceRuntime) -> Any:
    """A family's torch module with an artifact's tensors, on the device."""
    net = make().eval().requires_grad_(False)
    net.load_state_dict({name: torch.from_numpy(np.array(value)) for name, value in tensors.items()})
    return net.to(device=runtime.model.device, dtype=runtime.model.dtype)
