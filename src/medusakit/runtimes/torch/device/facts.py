"""What torch sees of devices: for people, and for the doctor."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from medusakit.runtimes.torch.device.graphs import Capture, capture_for


def device_name(device: Any) -> str:
    """ "cpu", or what the maker calls it."""
    return str(torch.cuda.get_device_name(device)) if device.type == "cuda" else str(device.type)


@dataclass(frozen=True, slots=True)
class TorchFacts:
    """devices: names of CUDA devices and their memory in bytes. tf32: float32 products may be rounded to 10 bits.
    capture_fault: why a small CUDA graph could not be captured, "" if it could or there is no device."""

    version: str
    devices: tuple[tuple[str, int], ...]
    tf32: bool
    capture_fault: str = ""


def torch_facts() -> TorchFacts:
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    found = [torch.cuda.get_device_properties(index) for index in range(count)]
    devices = tuple((str(one.name), int(one.total_memory)) for one in found)
    return TorchFacts(
        str(torch.__version__),
        devices,
        bool(torch.backends.cuda.matmul.allow_tf32),
        capture_fault(torch.device("cuda")) if devices else "",
    )


def capture_fault(device: Any, capture: Callable[[Any], Capture | None] = capture_for) -> str:
    """Captures a sum and replays it. Why that failed, "" if it did not."""
    cells = torch.zeros(8, device=device)

    def work() -> None:
        cells.add_(1)

    try:
        captured = capture(device)
        if captured is None:
            return "nothing captures on this device"
        replay = captured(work)
        cells.zero_()
        replay()
        return "" if cells.tolist() == [1] * len(cells) else "a replayed graph did not do what was captured"
    except RuntimeError as error:
        return str(error).splitlines()[0]
