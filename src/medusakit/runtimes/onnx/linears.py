"""Linear layers in the graph, one function a weight format."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from medusakit.models.spec import StoredTensor
from medusakit.runtimes.onnx.graph import GraphWriter


def emit_linear(graph: GraphWriter, x: str, name: str, tensors: Sequence[StoredTensor]) -> str:
    """x [..., in] times the transposed tensors, stacked along their outputs: [..., sum of outs]."""
    return emit_f32(graph, x, name, tensors)


def emit_f32(graph: GraphWriter, x: str, name: str, tensors: Sequence[StoredTensor]) -> str:
    stacked = np.concatenate([tensor.f32() for tensor in tensors]) if len(tensors) > 1 else tensors[0].f32()
    weight = graph.weight(f"{name}.weight", stacked.T)
    return graph.node("MatMul", [x, weight], name)
