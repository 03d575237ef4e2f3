"""Runtimes with prepared passes on the CPU: called as they are, or recorded and replayed as on a CUDA device."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import count
from typing import Any

import torch

from medusakit.runtimes.torch.device.attention import Kernel, TreeAttention
from medusakit.runtimes.torch.device.graphs import Capture
from medusakit.runtimes.torch.device.runtime import DeviceRuntime
from medusakit.runtimes.torch.load import torch_parts
from medusakit.runtimes.torch.masks import layer_windows

torch.set_num_threads(1)  # tiny products: a second thread only waits


def prepared(
    model: Any, capture: Capture | None = None, *, kernel: Kernel | None = None, **capabilities: Any
) -> DeviceRuntime:
    """capture: None calls the passes as they are. kernel: what all steps attend with; None: torch's. capabilities: what
    to change, e.g. max_rows=3."""
    known = torch_parts(model).runtime
    windows = layer_windows(known.model.config)  # type: ignore[attr-defined]
    assert windows is not None
    given: Callable[[Any], Capture | None] = lambda device: capture  # noqa: E731
    return DeviceRuntime(
        known.model,  # type: ignore[attr-defined]
        known.spec,
        replace(known.capabilities, **capabilities),
        windows,
        given,
        lambda model, spec: TreeAttention(model, spec, kernel, falling()),
    )


def falling() -> Callable[[Callable[[], Any]], float]:
    """A clock by which whoever is asked first, our kernel, is always the faster one."""
    times = count()
    return lambda call: next(times)
