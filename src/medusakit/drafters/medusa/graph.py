"""All parallel heads as one ONNX graph: h_t in, the best ids of every depth out.

    hidden [R, d] float32, branching [1] int64
    ids [R, heads, branching] int64 (places in the draft vocabulary), logprobs [R, heads, branching] float32

The guesses of a depth do not depend on the path, so every tree is a gather from these tables.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from medusakit.drafters.graph import DraftGraph
from medusakit.drafters.medusa.config import MedusaParams
from medusakit.tree.topology import FloatArray


def build_medusa(
    tensors: Mapping[str, FloatArray],
    params: MedusaParams,
    *,
    depth: int,
    head_rows: FloatArray,
    quantised: bool = True,
) -> bytes:
    """Serialised graph of the first `depth` heads. head_rows [Vd, d]: the LM head's rows, for a shared projection."""
    g = DraftGraph(quantised=quantised)
    size = head_rows.shape[1]
    hidden = g.input("hidden", np.float32, ["R", size])
    branching = g.input("branching", np.int64, [1])
    outs = [_head(g, tensors, params, hidden, head) for head in range(depth)]
    if params.projection == "shared":
        logits = g.linear(g.node("Concat", outs, "heads", axis=1), "lm_head", head_rows, "logits")
    else:
        own = [
            g.linear(x, f"projection_{head}", tensors["projection"][head], f"logits_{head}")
            for head, x in enumerate(outs)
        ]
        logits = g.node("Concat", own, "logits", axis=1)
    log_q = g.node("LogSoftmax", [logits], "log_q", axis=-1)
    g.nodes("TopK", [log_q, branching], ["logprobs", "ids"], axis=-1)
    g.output("ids", np.int64, ["R", depth, "B"])
    g.output("logprobs", np.float32, ["R", depth, "B"])
    return g.serialise()


def _head(g: DraftGraph, tensors: Mapping[str, FloatArray], params: MedusaParams, hidden: str, head: int) -> str:
    """[R, 1, d]: the blocks of one head, x + SiLU(W x + b) each (Medusa, eq. 1)."""
    x = hidden
    for block in range(params.blocks):
        at = f"_{head}_{block}"
        product = g.linear(x, f"block{at}", tensors[f"blocks.{block}.weight"][head], f"product{at}")
        shifted = g.node(
            "Add", [product, g.constant(f"bias{at}", tensors[f"blocks.{block}.bias"][head])], f"shifted{at}"
        )
        x = g.node("Add", [x, g.silu(shifted, f"silu{at}")], f"x{at}")
    return g.node("Unsqueeze", [x, g.ints(1)], f"head_{head}")
