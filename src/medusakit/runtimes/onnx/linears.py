"""Linear layers in the graph: dense float32, 8- and 4-bit blocks through `MatMulNBits`, or whole 8-bit rows.

`MatMulNBits` quantises activations per row and block, so a node's result does not depend on its siblings (one scale for
the whole tensor, as in DynamicQuantizeMatMul, would break exactness). So do whole rows: see `integers`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from medusakit.models.spec import StoredTensor, WeightSource
from medusakit.runtimes.onnx.blocks import Blocks, is_block_format, pack, quantise, stored_bits, unpack
from medusakit.runtimes.onnx.graph import GraphWriter
from medusakit.runtimes.onnx.integers import IntegerWriter
from medusakit.tree.topology import FloatArray

_INT8_ACTIVATIONS = 4  # `accuracy_level`: integer products, the fast kernels


class LinearWriter:
    """Writes products in one weight format and remembers which tensors had to be rounded again."""

    def __init__(self, graph: GraphWriter, source: WeightSource, weights: str, *, unit_rows: bool = False) -> None:
        """unit_rows: rows said to be `normed` have RMS 1 and no outliers (a rotated residual stream, gains folded)."""
        self._graph, self._source, self._weights, self._unit_rows = graph, source, weights, unit_rows
        self._integers = IntegerWriter(graph) if by_row(source, weights) else None
        self.requantised: list[str] = []

    def emit(
        self,
        x: str,
        name: str,
        tensors: Sequence[StoredTensor],
        *,
        biases: Sequence[StoredTensor] = (),
        head: bool = False,
        normed: bool = False,
    ) -> str:
        """x [t, in] times the tensors, stacked along their outputs, plus biases: [t, sum of outs].

        normed: x is what an RMS norm left.
        The LM head (`head`) never goes under 8 bits: it is stored so in 4-bit files, and its errors are the costliest.
        """
        bias = np.concatenate([tensor.f32() for tensor in biases]) if biases else None
        if self._weights == "f32":
            return self._dense(x, name, _stacked(tensors), bias)
        if self._integers is not None:
            self.requantised += [tensor.name for tensor in tensors]
            values = _stacked(tensors)
            if normed and self._unit_rows:
                product = self._integers.emit_normed(x, name, values)
            else:
                product = self._integers.emit(x, name, values, rows="logit_rows" if head else "ids")
            return product if bias is None else self._add(product, name, bias)
        blocks = [self._blocks(tensor, head) for tensor in tensors]
        stacked = _stack(blocks)
        if stacked is not None:
            return self._quantised(x, name, stacked, bias)
        parts = [
            self._quantised(x, f"{tensor.name}.part", part, None) for tensor, part in zip(tensors, blocks, strict=True)
        ]
        joined = self._graph.node("Concat", parts, f"{name}.joined", axis=-1)
        return joined if bias is None else self._add(joined, name, bias)

    def _blocks(self, tensor: StoredTensor, head: bool) -> Blocks:
        """Stored integers where the file has them and the format can hold them, else rounded here."""
        four = self._weights == "int4" and not head
        as_stored = not four or stored_bits(tensor) == 4 or self._source.default_weights == "int4"
        if is_block_format(tensor) and as_stored:
            blocks = unpack(tensor)
            return blocks if self._weights == "int4" else replace(blocks, bits=8)
        self.requantised.append(tensor.name)
        return quantise(tensor, 4 if four else 8)

    def _dense(self, x: str, name: str, values: FloatArray, bias: FloatArray | None) -> str:
        product = self._graph.node("MatMul", [x, self._graph.weight(f"{name}.weight", values.T)], f"{name}.product")
        return product if bias is None else self._add(product, name, bias)

    def _add(self, x: str, name: str, bias: FloatArray) -> str:
        return self._graph.node("Add", [x, self._graph.weight(f"{name}.bias", bias)], f"{name}.biased")

    def _quantised(self, x: str, name: str, blocks: Blocks, bias: FloatArray | None) -> str:
        graph = self._graph
        inputs = [x, graph.weight(f"{name}.q", pack(blocks)), graph.weight(f"{name}.scales", blocks.scales), "", ""]
        if bias is not None:
            inputs.append(graph.weight(f"{name}.bias", bias))
        outs, num_blocks = blocks.scales.shape
        product = graph.node(
            "MatMulNBits",
            inputs,
            f"{name}.product",
            contrib=True,
            N=outs,
            K=num_blocks * blocks.block,
            bits=blocks.bits,
            block_size=blocks.block,
            accuracy_level=_INT8_ACTIVATIONS,
        )
        if blocks.offsets is None:
            return product
        offsets = graph.weight(f"{name}.offsets", blocks.offsets.T)
        return graph.node("Gemm", [self._block_sums(x, blocks), offsets, product], f"{name}.corrected")

    def _block_sums(self, x: str, blocks: Blocks) -> str:
        """Sums of x over blocks, [t, in / block]: times the offsets they are what block minima add to the product."""
        graph, name = self._graph, f"{x}.sums{blocks.block}"
        if not graph.has(name):
            shape = graph.weight(f"shape.{blocks.scales.shape[1]}x{blocks.block}", np.array([-1, *blocks.q.shape[1:]]))
            graph.node(
                "ReduceSum",
                [graph.node("Reshape", [x, shape], f"{name}.in"), graph.weight("axis.2", np.array([2]))],
                name,
                keepdims=0,
            )
        return name


def _stacked(tensors: Sequence[StoredTensor]) -> FloatArray:
    values = [tensor.f32() for tensor in tensors]
    return np.concatenate(values) if len(values) > 1 else values[0]


def by_row(source: WeightSource, weights: str) -> bool:
    """Whether weights are rounded anew, by output channel: the fast int8, unless the file has 8-bit blocks itself."""
    return weights == "int8" and source.default_weights != "int8"


def _stack(parts: Sequence[Blocks]) -> Blocks | None:
    """One weight of several, or None where their blocks or containers differ."""
    if len({(part.bits, part.block, part.offsets is None) for part in parts}) > 1:
        return None
    offsets = [part.offsets for part in parts if part.offsets is not None]
    return Blocks(
        parts[0].bits,
        np.concatenate([part.q for part in parts]),
        np.concatenate([part.scales for part in parts]),
        np.concatenate(offsets) if offsets else None,
    )
