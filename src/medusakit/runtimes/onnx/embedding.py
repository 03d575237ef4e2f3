"""The token embedding in the graph: a lookup in the file's own format where there is a kernel for it, else float32.

ONNX Runtime maps the table from disk, so only rows that tokens ask for take memory (it is a fifth of a small model).
"""

from __future__ import annotations

import numpy as np

from medusakit.models.spec import StoredTensor, WeightSource
from medusakit.runtimes.onnx.blocks import Blocks, is_block_format, pack, unpack
from medusakit.runtimes.onnx.graph import GraphWriter


def emit_embedding(source: WeightSource, graph: GraphWriter, ids: str) -> str:
    """ids [t] int64 to scaled embeddings [t, d] float32."""
    table, scale = source.tensor("embed"), source.spec.embed_scale
    rows = _lookup(table, graph, ids)
    if scale == 1:
        return rows
    return graph.node("Mul", [rows, graph.weight("embed.scale", np.array(scale, np.float32))], "embed.scaled")


def _lookup(table: StoredTensor, graph: GraphWriter, ids: str) -> str:
    if is_block_format(table):
        blocks = unpack(table)
        if blocks.offsets is None:
            return _gather_blocks(blocks, graph, ids)
    if table.format == "f16":
        halves = graph.node("Gather", [graph.weight("embed.weight", table.raw), ids], "embed.halves", axis=0)
        return graph.node("Cast", [halves], "embed.rows", to=1)  # to float32
    return graph.node("Gather", [graph.weight("embed.weight", table.f32()), ids], "embed.rows", axis=0)


def _gather_blocks(blocks: Blocks, graph: GraphWriter, ids: str) -> str:
    packed = graph.weight("embed.q", pack(blocks).reshape(len(blocks.q), -1))
    inputs = [packed, ids, graph.weight("embed.scales", blocks.scales)]
    return graph.node(
        "GatherBlockQuantized", inputs, "embed.rows", contrib=True, bits=blocks.bits, block_size=blocks.block,
        gather_axis=0, quantize_axis=1,
    )  # fmt: skip
