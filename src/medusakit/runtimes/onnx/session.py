"""Every ONNX Runtime session of the process is made here, so that model and drafters do not fight for the cores.

ONNX Runtime can share one thread pool between sessions, but only for the whole process and for good: later sessions
with their own number of threads, a host application's included, then fail. So each session has its own pool, whose idle
workers give the core up soon: the default of about a millisecond makes the other session's first products wait for it.
Measured on two cores (a draft of ten 576 x 576 products after each step): 0.64 ms with the short wait, 0.53 with one
pool, 0.9 to 1.0 with the default; the step itself does not change.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import onnxruntime as ort

from medusakit.errors import RuntimeFailure

_SPIN_US = 100  # longer than the gaps between the products of one pass, shorter than a draft


def default_threads() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def make_session(model: str | Path | bytes, *, threads: int | None = None) -> Any:
    """A session of a graph file or of serialised graph bytes. Raises RuntimeFailure with ONNX Runtime's own reason."""
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads or default_threads()
    options.inter_op_num_threads = 1
    options.enable_mem_pattern = False  # patterns are kept per input shape, and the context's length changes every step
    options.log_severity_level = 4  # errors arrive as exceptions
    options.add_session_config_entry("session.intra_op.spin_duration_us", str(_SPIN_US))
    try:
        graph = model if isinstance(model, bytes) else str(model)
        return ort.InferenceSession(graph, options, providers=["CPUExecutionProvider"])
    except Exception as error:
        raise RuntimeFailure(
            f"ONNX Runtime cannot load the graph: {error}",
            hint="medusa models clean --all   and the same again: graphs are built anew",
        ) from error
