"""The decoder graph of a model, attention in place on the KV memory.

Inputs (b rows of n nodes, t = b * n; c cells a row; h and l row selections; s = head size / 16):
    ids             [t]                 int64
    position_ids    [b, n]              int64, length + depth
    key_cells       [b, n, kv, 4]       int64, where each node's key goes: row, head, 0, cell
    value_cells     [b, n, kv, s, 4]    int64, the same for the slices of its value: row, head, slice, cell
    bias.{window}   [b, n, c]           0 where a node may look, very negative elsewhere; one a distinct window
    ones            [c, 16]
    cos, sin        [positions, half]   half a head's rotated dimensions;
                                        cos_local, sin_local where windowed layers rotate otherwise
    hidden_rows     [h]                 int64 into the t nodes;  logit_rows [l] int64 into the h hidden states
    activation_level, activation_zero   only where whole rows are rounded: see `integers`
    past.keys.{layer}    [b, kv, 1, c, size]   bound to the same memory as present.keys.{layer}
    past.values.{layer}  [b, kv, s, c, 16]     likewise
Outputs: hidden [h, d] after the final norm, logits [l, V], present.keys.{layer}, present.values.{layer}.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from medusakit.models.spec import ModelSpec, WeightSource
from medusakit.runtimes.onnx.attention import AttentionWriter, bias_name
from medusakit.runtimes.onnx.embedding import emit_embedding
from medusakit.runtimes.onnx.graph import Dim, GraphWriter
from medusakit.runtimes.onnx.heads import HeadLayout
from medusakit.runtimes.onnx.kv import SLICE
from medusakit.runtimes.onnx.linears import LinearWriter, by_row
from medusakit.runtimes.onnx.rotation import RotatedSource


def build_decoder(source: WeightSource, weights: str, graph: GraphWriter) -> tuple[str, ...]:
    """Write the whole graph of `source` and save it; returns the names of the tensors that were rounded again."""
    rotated = RotatedSource(source) if by_row(source, weights) else None
    unit_rows = rotated is not None and rotated.turn is not None
    linears = LinearWriter(graph, source, weights, unit_rows=unit_rows)
    _Decoder(rotated or source, graph, linears, rotated).build()
    graph.save()
    return tuple(linears.requantised)


class _Decoder:
    def __init__(
        self, source: WeightSource, graph: GraphWriter, linears: LinearWriter, rotated: RotatedSource | None
    ) -> None:
        self._source, self._graph, self._linears, self._rotated = source, graph, linears, rotated
        self._spec: ModelSpec = source.spec
        self._layout = HeadLayout.of(source.spec)

    def build(self) -> None:
        spec, graph = self._spec, self._graph
        self._declare()
        attention = AttentionWriter(self._source, graph, self._linears)
        residual = self._turned(emit_embedding(self._source, graph, "ids"), "turn")
        normed = self._norm(residual, "layers.0.attn_norm")
        for layer in range(spec.num_layers):
            update = self._attention(attention, layer, normed)
            residual, normed = self._add_norm(residual, update, f"layers.{layer}.ffn_norm")
            following = f"layers.{layer + 1}.attn_norm" if layer + 1 < spec.num_layers else "final_norm"
            residual, normed = self._add_norm(residual, self._feed_forward(layer, normed), following)
        states = graph.node("Gather", [normed, "hidden_rows"], "states", axis=0)
        graph.node("Identity", [self._turned(states, "unturn")], "hidden")
        self._lm_head(graph.node("Gather", [states, "logit_rows"], "head_in", axis=0))

    def _declare(self) -> None:
        spec, graph = self._spec, self._graph
        graph.input("ids", np.int64, ["t"])
        graph.input("position_ids", np.int64, ["b", "n"])
        kv, slices = spec.num_kv_heads, self._layout.size // SLICE
        graph.input("key_cells", np.int64, ["b", "n", kv, 4])
        graph.input("value_cells", np.int64, ["b", "n", kv, slices, 4])
        graph.input("ones", np.float32, ["c", SLICE])
        for window in sorted(set(spec.windows)):
            graph.input(bias_name(window), np.float32, ["b", "n", "c"])
        for suffix, rope in (("", spec.rope), ("_local", spec.rope_local)):
            for name in ("cos", "sin") if rope is not None else ():
                graph.input(name + suffix, np.float32, ["positions", self._layout.half])
        graph.input("hidden_rows", np.int64, ["h"])
        graph.input("logit_rows", np.int64, ["l"])
        shapes: dict[str, list[Dim]] = {
            "keys": ["b", kv, 1, "c", self._layout.size],
            "values": ["b", kv, slices, "c", SLICE],
        }
        caches = [(f"{kind}.{layer}", shapes[kind]) for layer in range(spec.num_layers) for kind in shapes]
        for name, shape in caches:
            graph.input(f"past.{name}", np.float32, shape)
        graph.output("hidden", np.float32, ["h", spec.hidden_size])
        graph.output("logits", np.float32, ["l", spec.vocab_size])
        for name, shape in caches:
            graph.output(f"present.{name}", np.float32, shape)

    def _attention(self, writer: AttentionWriter, layer: int, x: str) -> str:
        update = writer.emit(layer, x)
        return self._norm(update, f"layers.{layer}.post_attn_norm") if self._spec.sandwich_norms else update

    def _feed_forward(self, layer: int, x: str) -> str:
        graph, at = self._graph, f"layers.{layer}"
        gate, up = (self._linear(x, f"{at}.{part}", normed=True) for part in ("gate", "up"))
        if self._spec.activation == "silu":
            active = graph.node("QuickGelu", [gate], f"{at}.active", contrib=True, alpha=1.0)  # x * sigmoid(alpha * x)
        else:
            active = graph.node("FastGelu", [gate], f"{at}.active", contrib=True)
        product = graph.node("Mul", [active, up], f"{at}.gated")
        update = self._linear(self._spread(product), f"{at}.down")
        return self._norm(update, f"{at}.post_ffn_norm") if self._spec.sandwich_norms else update

    def _turned(self, x: str, name: Literal["turn", "unturn"]) -> str:
        """x [t, d] in or out of the rotation of the residual stream, where there is one."""
        matrix = None if self._rotated is None else getattr(self._rotated, name)
        return x if matrix is None else self._graph.node("MatMul", [x, self._graph.weight(name, matrix)], f"{x}.{name}")

    def _spread(self, product: str) -> str:
        """The gated product, rotated in blocks, where `down` expects it so."""
        matrix = None if self._rotated is None else self._rotated.product
        if matrix is None:
            return product
        graph = self._graph
        shapes = [graph.weight(f"shape.{size}", np.array([-1, size])) for size in (len(matrix), self._spec.ffn_size)]
        blocks = graph.node("Reshape", [product, shapes[0]], f"{product}.blocks")
        spread = graph.node("MatMul", [blocks, graph.weight("hadamard", matrix)], f"{product}.spread")
        return graph.node("Reshape", [spread, shapes[1]], f"{product}.rotated")

    def _lm_head(self, x: str) -> None:
        graph, cap = self._graph, self._spec.final_softcap
        tensor = self._source.tensor("embed" if self._spec.tied_embeddings else "lm_head")
        scores = self._linears.emit(x, "lm_head", [tensor], head=True, normed=True)
        if cap is not None:
            scale = graph.weight("softcap", np.array(cap, np.float32))
            squashed = graph.node("Tanh", [graph.node("Div", [scores, scale], "softcap.in")], "softcap.out")
            scores = graph.node("Mul", [squashed, scale], "softcapped")
        graph.node("Identity", [scores], "logits")

    def _linear(self, x: str, name: str, *, normed: bool = False) -> str:
        return self._linears.emit(x, name, [self._source.tensor(name)], normed=normed)

    def _norm(self, x: str, name: str) -> str:
        inputs = [x, self._norm_weight(name)]
        return self._graph.node(
            "SimplifiedLayerNormalization", inputs, f"{name}.out", axis=-1, stash_type=1, epsilon=self._spec.norm_eps
        )

    def _add_norm(self, residual: str, update: str, name: str) -> tuple[str, str]:
        """(residual + update, its RMS norm)."""
        inputs = [residual, update, self._norm_weight(name)]
        outputs = [f"{name}.out", "", "", f"{name}.sum"]
        self._graph.multi(
            "SkipSimplifiedLayerNormalization", inputs, outputs, contrib=True, epsilon=self._spec.norm_eps
        )
        return outputs[3], outputs[0]

    def _norm_weight(self, name: str) -> str:
        return self._graph.weight(f"{name}.weight", self._source.tensor(name).f32())
