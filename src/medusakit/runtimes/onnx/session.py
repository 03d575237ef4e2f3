"""Every ONNX Runtime session of the process is made here, so that model and drafters do not fight for the cores."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import onnxruntime as ort

from medusakit.errors import RuntimeFailure


def default_threads() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def make_session(model: str | Path | bytes, *, threads: int | None = None) -> Any:
    """A session of a graph file or of serialised graph bytes. Raises RuntimeFailure with ONNX Runtime's own reason."""
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads or default_threads()
    options.inter_op_num_threads = 1
    options.enable_mem_pattern = False  # patterns are kept per input shape, and the context's length changes every step
    options.log_severity_level = 3
    try:
        return ort.InferenceSession(
            model if isinstance(model, bytes) else str(model), options, providers=["CPUExecutionProvider"]
        )
    except Exception as error:
        raise RuntimeFailure(f"ONNX Runtime cannot load the graph: {error}") from error
