"""The decoder graph of a model: about nine nodes a layer, attention in place on the KV buffers.

Inputs (b rows of n nodes, t = b * n; c positions with the nodes in them; h and l row selections):
    embeds         [t, d]         token embeddings, scaled
    position_ids   [b, n]         int64, length + depth
    seqlens_k      [b]            int32, positions of the row with its nodes, less 1
    query_seqlens  [b]            int32, nodes of the row; the rest of its n is padding
    total          []             int32, c
    bias.{window}  [1 or b, 1, n, c]   0 where a node may look, very negative elsewhere; one a distinct window
    cos, sin       [capacity, rotated / 2]   and cos_local, sin_local where windowed layers rotate otherwise
    hidden_rows    [h]            int64 into the t nodes;  logit_rows [l] int64 into the h hidden states
    past.{j}       [b, kv_heads, capacity, head_dim]   bound to the same memory as present.{j}
Outputs: hidden [h, d] after the final norm, logits [l, V], present.{j}.
"""

from __future__ import annotations

import numpy as np

from medusakit.models.spec import ModelSpec, WeightSource
from medusakit.runtimes.onnx.graph import Dim, GraphWriter
from medusakit.runtimes.onnx.linears import LinearWriter


def build_decoder(source: WeightSource, weights: str, graph: GraphWriter) -> tuple[str, ...]:
    """Write the whole graph of `source` and save it; returns the names of the tensors that were rounded again."""
    linears = LinearWriter(graph, source, weights)
    _Decoder(source, graph, linears).build()
    graph.save()
    return tuple(linears.requantised)


class _Decoder:
    def __init__(self, source: WeightSource, graph: GraphWriter, linears: LinearWriter) -> None:
        self._source, self._graph, self._linears = source, graph, linears
        self._spec: ModelSpec = source.spec
        self._biases = frozenset(name for name in source.names() if name.endswith("_bias"))

    def build(self) -> None:
        spec, graph = self._spec, self._graph
        self._declare()
        last_dim = graph.weight("shape.rest", np.array([-1]))
        graph.node("Concat", [graph.node("Shape", ["position_ids"], "shape.rows"), last_dim], "shape.attention", axis=0)
        residual, normed = "embeds", self._norm("embeds", "layers.0.attn_norm")
        for layer in range(spec.num_layers):
            update = self._attention(layer, normed)
            residual, normed = self._add_norm(residual, update, f"layers.{layer}.ffn_norm")
            following = f"layers.{layer + 1}.attn_norm" if layer + 1 < spec.num_layers else "final_norm"
            residual, normed = self._add_norm(residual, self._feed_forward(layer, normed), following)
        graph.node("Gather", [normed, "hidden_rows"], "hidden", axis=0)
        self._lm_head(graph.node("Gather", ["hidden", "logit_rows"], "head_in", axis=0))

    def _declare(self) -> None:
        spec, graph = self._spec, self._graph
        graph.input("embeds", np.float32, ["t", spec.hidden_size])
        graph.input("position_ids", np.int64, ["b", "n"])
        graph.input("seqlens_k", np.int32, ["b"])
        graph.input("query_seqlens", np.int32, ["b"])
        graph.input("total", np.int32, [])
        for window in sorted(set(spec.windows)):
            graph.input(bias_name(window), np.float32, ["bias_rows", 1, "n", "c"])
        for suffix, rope in (("", spec.rope), ("_local", spec.rope_local)):
            for name in ("cos", "sin") if rope is not None else ():
                graph.input(name + suffix, np.float32, ["positions", rope.dim // 2 if rope else 0])
        graph.input("hidden_rows", np.int64, ["h"])
        graph.input("logit_rows", np.int64, ["l"])
        cache: list[Dim] = ["b", spec.num_kv_heads, "capacity", spec.head_dim]
        for j in range(2 * spec.num_layers):
            graph.input(f"past.{j}", np.float32, cache)
        graph.output("hidden", np.float32, ["h", spec.hidden_size])
        graph.output("logits", np.float32, ["l", spec.vocab_size])
        for j in range(2 * spec.num_layers):
            graph.output(f"present.{j}", np.float32, cache)

    def _attention(self, layer: int, x: str) -> str:
        spec, graph, at = self._spec, self._graph, f"layers.{layer}"
        local = "_local" if spec.windows[layer] and spec.rope_local is not None else ""
        caches = [f"past.{2 * layer}", f"past.{2 * layer + 1}"]
        unused = [""] * 5  # sink, cache scales, norm weights
        inputs = [
            *self._qkv(layer, x),
            *caches,
            "seqlens_k",
            "total",
            f"cos{local}",
            f"sin{local}",
            "position_ids",
            bias_name(spec.windows[layer]),
            *unused,
            "query_seqlens",
        ]
        outputs = [f"{at}.attention", f"present.{2 * layer}", f"present.{2 * layer + 1}"]
        graph.multi(
            "GroupQueryAttention",
            inputs,
            outputs,
            contrib=True,
            num_heads=spec.num_heads,
            kv_num_heads=spec.num_kv_heads,
            do_rotary=1,
            scale=spec.attn_scale or spec.head_dim**-0.5,
        )
        width = graph.weight("shape.heads_out", np.array([-1, spec.num_heads * spec.head_dim]))
        flat = graph.node("Reshape", [outputs[0], width], f"{at}.attention.flat")
        update = self._linear(flat, f"{at}.o")
        return self._norm(update, f"{at}.post_attn_norm") if spec.sandwich_norms else update

    def _qkv(self, layer: int, x: str) -> tuple[str, str, str]:
        """[b, n, ...]: one packed tensor ("" for key and value), or three where queries and keys are normed apart."""
        at = f"layers.{layer}"
        if not self._spec.qk_norm:
            packed = self._linear(x, f"{at}.q", f"{at}.k", f"{at}.v")
            return self._by_row(packed), "", ""
        query, key, value = (self._linear(x, f"{at}.{part}") for part in "qkv")
        return (
            self._by_row(self._head_norm(query, f"{at}.q_norm")),
            self._by_row(self._head_norm(key, f"{at}.k_norm")),
            self._by_row(value),
        )

    def _by_row(self, x: str) -> str:
        return self._graph.node("Reshape", [x, "shape.attention"], f"{x}.by_row")

    def _head_norm(self, x: str, name: str) -> str:
        """RMS norm of every head apart: [t * heads, head_dim]."""
        shape = self._graph.weight("shape.head", np.array([-1, self._spec.head_dim]))
        return self._norm(self._graph.node("Reshape", [x, shape], f"{name}.in"), name)

    def _feed_forward(self, layer: int, x: str) -> str:
        graph, at = self._graph, f"layers.{layer}"
        gate = self._linear(x, f"{at}.gate")
        if self._spec.activation == "silu":
            active = graph.node("QuickGelu", [gate], f"{at}.active", contrib=True, alpha=1.0)  # x * sigmoid(alpha * x)
        else:
            active = graph.node("FastGelu", [gate], f"{at}.active", contrib=True)
        product = graph.node("Mul", [active, self._linear(x, f"{at}.up")], f"{at}.gated")
        update = self._linear(product, f"{at}.down")
        return self._norm(update, f"{at}.post_ffn_norm") if self._spec.sandwich_norms else update

    def _lm_head(self, x: str) -> None:
        graph, cap = self._graph, self._spec.final_softcap
        tensor = "embed" if self._spec.tied_embeddings else "lm_head"
        scores = self._linears.emit(x, "lm_head", [tensor], head=True)
        if cap is not None:
            scale = graph.weight("softcap", np.array(cap, np.float32))
            squashed = graph.node("Tanh", [graph.node("Div", [scores, scale], "softcap.in")], "softcap.out")
            scores = graph.node("Mul", [squashed, scale], "softcapped")
        graph.node("Identity", [scores], "logits")

    def _linear(self, x: str, *names: str) -> str:
        biases = [f"{name}_bias" for name in names if f"{name}_bias" in self._biases]
        return self._linears.emit(x, names[0], names, biases=biases)

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


def bias_name(window: int) -> str:
    return f"bias.{window}"
