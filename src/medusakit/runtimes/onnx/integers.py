"""Products of whole rows of 8-bit activations with 8-bit weights, one scale a row and one an output channel.

The flattest T(n) that the CPU kernels offer where the processor has VNNI (`docs/performance.md`). Integer sums are
exact, so a row's result does not depend on its siblings. Without VNNI the kernels add pairs of products in 16 bits,
which overflows unless activations keep to 7 bits: `activation_levels` are inputs of the graph, set at load.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from medusakit.runtimes.onnx.graph import GraphWriter
from medusakit.tree.topology import FloatArray

NORMED_BOUND = 4.0  # of a row of RMS 1 after the rotation: about one element in 16,000 is beyond it
_CHANNELS = 4096
_LEVEL, _ZERO = "activation_level", "activation_zero"


def activation_levels() -> dict[str, NDArray[np.generic]]:
    """Graph inputs: one over the levels on either side of zero, and the zero point, for this processor."""
    levels = 127 if _has_vnni() else 63
    return {_LEVEL: np.array(1 / levels, np.float32), _ZERO: np.array([levels + 1], np.uint8)}


class IntegerWriter:
    """Writes such products into a graph; rows of an input are rounded once, however many products read them."""

    def __init__(self, graph: GraphWriter) -> None:
        self._graph = graph
        graph.input(_LEVEL, np.float32, [])
        graph.input(_ZERO, np.uint8, [1])

    def emit(self, x: str, name: str, values: FloatArray, rows: str) -> str:
        """x [t, in] times values [out, in] transposed; `rows`: a tensor whose only dimension is t."""
        rounded, row_scale = self._rounded(x, rows)
        unit = self._graph.weight("one", np.array(1, np.float32))
        return self._graph.node("Mul", [self._product(rounded, unit, name, values), row_scale], f"{name}.product")

    def emit_normed(self, x: str, name: str, values: FloatArray) -> str:
        """The same for rows whose elements are within NORMED_BOUND (beyond it they are cut): one scale for all."""
        graph = self._graph
        if not graph.has("normed.step"):
            bound = graph.weight("normed.bound", np.array(NORMED_BOUND, np.float32))
            graph.node("Mul", [bound, _LEVEL], "normed.step")
        if not graph.has(f"{x}.rounded"):
            graph.node("QuantizeLinear", [x, "normed.step", self._scalar_zero()], f"{x}.rounded")
        return self._product(f"{x}.rounded", "normed.step", name, values)

    def _product(self, rounded: str, step: str, name: str, values: FloatArray) -> str:
        graph = self._graph
        q, scale = _by_channel(values)
        inputs = [rounded, graph.weight(f"{name}.q", q.T), step, graph.weight(f"{name}.scales", scale)]
        return graph.node("MatMulIntegerToFloat", [*inputs, self._scalar_zero()], f"{name}.integers", contrib=True)

    def _rounded(self, x: str, rows: str) -> tuple[str, str]:
        """(x in steps of its row's scale, uint8 around the zero point; the scales [t, 1])."""
        graph, rounded, scale = self._graph, f"{x}.rounded", f"{x}.row_scale"
        if not graph.has(rounded):
            largest = graph.node(
                "ReduceMax", [graph.node("Abs", [x], f"{x}.abs"), graph.weight("axis.1", np.array([1]))],
                f"{x}.largest", keepdims=0,
            )  # fmt: skip
            step = graph.node("Mul", [largest, _LEVEL], f"{x}.step")
            graph.node("QuantizeLinear", [x, step, self._zeros(rows)], rounded, axis=0)
            graph.node("Unsqueeze", [step, graph.weight("axis.1", np.array([1]))], scale)
        return rounded, scale

    def _zeros(self, rows: str) -> str:
        graph, name = self._graph, f"{rows}.zeros"
        if not graph.has(name):
            graph.node("Expand", [_ZERO, graph.node("Shape", [rows], f"{rows}.count")], name)
        return name

    def _scalar_zero(self) -> str:
        graph = self._graph
        if not graph.has("zero.scalar"):
            graph.node("Squeeze", [_ZERO], "zero.scalar")
        return "zero.scalar"


def _by_channel(values: FloatArray) -> tuple[NDArray[np.int8], FloatArray]:
    """(q [out, in] int8, scales [out])."""
    q, scales = np.empty(values.shape, np.int8), np.empty(len(values), np.float32)
    for start in range(0, len(values), _CHANNELS):  # some at a time: copies of a whole LM head are large
        part = slice(start, start + _CHANNELS)
        scales[part] = np.abs(values[part]).max(axis=1) / np.float32(127)
        scales[part][scales[part] == 0] = 1
        q[part] = np.rint(values[part] / scales[part, None])
    return q, scales


def _has_vnni() -> bool:
    with suppress(OSError):
        return bool({"avx512_vnni", "avx_vnni"} & set(Path("/proc/cpuinfo").read_text().split()))
    return False
