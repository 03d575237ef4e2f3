"""Work of fixed shapes: captured as CUDA graphs and replayed, or, with the same meaning, called as it is.

A captured function must read all that changes from tensors that stay where they are, and write its results to such
tensors. What of the host it looked at when it was captured stays so.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

import torch

Work = Callable[[], None]
Capture = Callable[[Work], Work]
_WARM_UPS = 2  # calls before a capture: libraries choose their kernels and take their memory


class CudaCapture:
    """Captures functions on one device. All graphs share one memory pool: they are replayed one after the other, and
    what a graph leaves in the pool is not read after another has run."""

    def __init__(self, device: Any) -> None:
        self._device, self._pool = device, torch.cuda.graph_pool_handle()
        self._stream = torch.cuda.Stream(device)

    def __call__(self, work: Work) -> Work:
        """Runs `work` some times, then captures it. Raises RuntimeError where the device cannot capture it."""
        with torch.cuda.device(self._device):
            current = torch.cuda.current_stream()
            self._stream.wait_stream(current)
            with torch.cuda.stream(self._stream):
                for _ in range(_WARM_UPS):
                    work()
            current.wait_stream(self._stream)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, pool=self._pool, stream=self._stream, capture_error_mode="thread_local"):
                work()
        replay: Work = graph.replay
        return replay


def capture_for(device: Any) -> Capture | None:
    """What captures on this device; None where nothing does, as on the CPU."""
    return CudaCapture(device) if device.type == "cuda" else None


class Graphs:
    """Replays by key. reason: why work is called as it is although the device captures, "" where that is not so.

    refuses  told the reason, once
    """

    def __init__(self, capture: Capture | None, refuses: Callable[[str], None]) -> None:
        self._capture, self._refuses = capture, refuses
        self._replays: dict[Hashable, Work] = {}
        self.reason = ""

    def __len__(self) -> int:
        return len(self._replays)

    def run(self, key: Hashable, work: Work) -> None:
        """`work`, or the replay of what it did when it was first met under this key."""
        if self._capture is None:
            return work()
        if key not in self._replays:
            try:
                self._replays[key] = self._capture(work)
            except RuntimeError as error:
                self._give_up(error)
                return work()
        self._replays[key]()

    def forget(self, stale: Callable[[Any], bool]) -> None:
        """Capture anew under these keys: buffers moved, or the work is another's."""
        self._replays = {key: replay for key, replay in self._replays.items() if not stale(key)}

    def _give_up(self, error: RuntimeError) -> None:
        """One capture that fails says something of the model, and so of all shapes."""
        self._capture = None
        self._replays.clear()
        first = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        self.reason = f"its passes cannot be captured as CUDA graphs: {first}"
        self._refuses(self.reason)
