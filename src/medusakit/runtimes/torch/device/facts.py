"""What torch sees of devices: for people, and for the doctor."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from medusakit.runtimes.torch.device.graphs import CudaCapture


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
        _capture_fault() if devices else "",
    )


def _capture_fault() -> str:
    cells = torch.zeros(8, device="cuda")
    try:
        replay = CudaCapture(cells.device)(lambda: cells.add_(1) and None)
        cells.zero_()
        replay()
        return "" if float(cells.sum()) == len(cells) else "a replayed graph did not do what was captured"
    except RuntimeError as error:
        return str(error).splitlines()[0]
