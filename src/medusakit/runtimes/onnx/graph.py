"""Writes one ONNX graph: nodes as they are asked for, large weights streamed to a file beside it.

Only one tensor is in memory at a time, and the graph file itself stays small, so a model of any size can be written
(protobuf stops at 2 GB) and ONNX Runtime maps the weights instead of reading them.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

GRAPH_FILE = "model.onnx"
WEIGHTS_FILE = "weights.bin"
OPSET = 21
IR_VERSION = 10
CONTRIB = "com.microsoft"
_ALIGNMENT = 4096  # a page: offsets that ONNX Runtime can map
_INLINE_BYTES = 1024
_SLICE_BYTES = 16 << 20

Dim = int | str


class GraphWriter:
    """Collects nodes, inputs, outputs and weights; `save` writes `model.onnx`. Tensors are named by their strings.

    A context manager: the weights file is complete when the block ends.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._nodes: list[Any] = []
        self._inputs: list[Any] = []
        self._outputs: list[Any] = []
        self._initializers: list[Any] = []
        self._known: set[str] = set()
        self._weights = (folder / WEIGHTS_FILE).open("wb")

    def __enter__(self) -> GraphWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self._weights.close()

    def input(self, name: str, dtype: type[np.generic], shape: Sequence[Dim]) -> str:
        self._inputs.append(helper.make_tensor_value_info(name, _elem(dtype), list(shape)))
        return name

    def output(self, name: str, dtype: type[np.generic], shape: Sequence[Dim]) -> str:
        self._outputs.append(helper.make_tensor_value_info(name, _elem(dtype), list(shape)))
        return name

    def node(self, op: str, inputs: Sequence[str], name: str, *, contrib: bool = False, **attributes: object) -> str:
        """A node with one output, which is called `name`."""
        self.multi(op, inputs, (name,), contrib=contrib, **attributes)
        return name

    def multi(
        self, op: str, inputs: Sequence[str], outputs: Sequence[str], *, contrib: bool = False, **attributes: object
    ) -> None:
        """A node with several outputs; an empty name stands for an output (or input) that is left out."""
        domain = CONTRIB if contrib else ""
        self._nodes.append(
            helper.make_node(
                op, list(inputs), list(outputs), name=next(filter(None, outputs)), domain=domain, **attributes
            )
        )

    def weight(self, name: str, array: np.ndarray[Any, Any]) -> str:
        """A constant tensor; asked for twice by the same name, it is written once."""
        if name in self._known:
            return name
        self._known.add(name)
        if array.nbytes <= _INLINE_BYTES:
            self._initializers.append(numpy_helper.from_array(np.ascontiguousarray(array), name))
        else:
            self._initializers.append(self._external(name, array))
        return name

    def has(self, name: str) -> bool:
        """Whether some node already makes this tensor."""
        return any(name in node.output for node in reversed(self._nodes))

    def save(self) -> None:
        """Write the graph file, once everything is in it."""
        graph = helper.make_graph(self._nodes, "medusakit", self._inputs, self._outputs, self._initializers)
        opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid(CONTRIB, 1)]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION, producer_name="medusakit")
        onnx.save(model, str(self._folder / GRAPH_FILE))

    def _external(self, name: str, array: np.ndarray[Any, Any]) -> Any:
        self._weights.write(b"\0" * (-self._weights.tell() % _ALIGNMENT))
        offset = self._weights.tell()
        rows = max(1, _SLICE_BYTES * len(array) // array.nbytes)
        for start in range(0, len(array), rows):  # a transposed array is copied slice by slice
            piece = np.ascontiguousarray(array[start : start + rows])
            self._weights.write(piece.view(np.uint8).data)  # `tofile` does not say why a disk refuses
        tensor = TensorProto(
            name=name,
            dims=array.shape,
            data_type=helper.np_dtype_to_tensor_dtype(array.dtype),
            data_location=TensorProto.EXTERNAL,
        )
        for key, value in (("location", WEIGHTS_FILE), ("offset", offset), ("length", array.nbytes)):
            tensor.external_data.add(key=key, value=str(value))
        return tensor


def _elem(dtype: type[np.generic]) -> int:
    return int(helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))
