"""A small ONNX graph in memory: what the drafters' graphs are written with.

Weights are kept in 8 bits: a drafter reads all of them once per depth, and what it says only has to be a good guess.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import helper, numpy_helper

from medusakit.tree.topology import FloatArray

_OPSET = 21
_IR_VERSION = 10
_CONTRIB = "com.microsoft"


class DraftGraph:
    """Collects nodes and constants; every method returns the name of the tensor it made."""

    def __init__(self, *, quantised: bool = True) -> None:
        """quantised False: weights in float32, for comparing a graph exactly."""
        self._quantised = quantised
        self._nodes: list[Any] = []
        self._inputs: list[Any] = []
        self._outputs: list[Any] = []
        self._constants: dict[str, Any] = {}

    def input(self, name: str, dtype: type[np.generic], shape: Sequence[int | str]) -> str:
        self._inputs.append(helper.make_tensor_value_info(name, _elem(dtype), list(shape)))
        return name

    def output(self, name: str, dtype: type[np.generic], shape: Sequence[int | str]) -> str:
        self._outputs.append(helper.make_tensor_value_info(name, _elem(dtype), list(shape)))
        return name

    def node(self, op: str, inputs: Sequence[str], name: str, **attributes: Any) -> str:
        self.nodes(op, inputs, (name,), **attributes)
        return name

    def nodes(
        self, op: str, inputs: Sequence[str], names: Sequence[str], *, domain: str = "", **attributes: Any
    ) -> Sequence[str]:
        """A node with several outputs."""
        self._nodes.append(helper.make_node(op, list(inputs), list(names), name=names[0], domain=domain, **attributes))
        return names

    def constant(self, name: str, value: NDArray[np.generic]) -> str:
        """A constant tensor; asked for twice by one name, it is stored once."""
        if name not in self._constants:
            self._constants[name] = numpy_helper.from_array(np.ascontiguousarray(value), name)
        return name

    def ints(self, *values: int) -> str:
        return self.constant("i_" + "_".join(map(str, values)), np.array(values, np.int64))

    def linear(self, x: str, weight_name: str, weight: FloatArray, name: str) -> str:
        """x [..., in] times weight [out, in] transposed, in 8 bits: one scale per output, and one for all of x."""
        if not self._quantised:
            return self.node("MatMul", [x, self.constant(weight_name, weight.T)], name)
        constants = [f"{weight_name}.{part}" for part in ("q", "scale", "zero")]
        if constants[0] not in self._constants:
            scale = np.maximum(np.abs(weight).max(axis=1), 1e-12) / 127.0
            self.constant(constants[0], np.round(weight / scale[:, None]).astype(np.int8).T)
            self.constant(constants[1], scale.astype(np.float32))
            self.constant(constants[2], np.zeros(len(scale), np.int8))
        self.nodes("DynamicQuantizeMatMul", [x, *constants], (name,), domain=_CONTRIB)
        return name

    def rms(self, x: str, size: int, name: str) -> str:
        """Rows [..., size] scaled to mean square one."""
        ones = self.constant(f"ones_{size}", np.ones(size, np.float32))
        return self.node("SimplifiedLayerNormalization", [x, ones], name, axis=-1, epsilon=1e-6)

    def silu(self, x: str, name: str) -> str:
        return self.node("Mul", [x, self.node("Sigmoid", [x], f"{name}_sigmoid")], name)

    def serialise(self) -> bytes:
        graph = helper.make_graph(self._nodes, "drafter", self._inputs, self._outputs, list(self._constants.values()))
        opsets = [helper.make_opsetid("", _OPSET), helper.make_opsetid(_CONTRIB, 1)]
        data: bytes = helper.make_model(graph, opset_imports=opsets, ir_version=_IR_VERSION).SerializeToString()
        return data


def _elem(dtype: type[np.generic]) -> int:
    return int(helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))
