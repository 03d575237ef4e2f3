"""The decoder graph of a model: about nine nodes a layer, attention in place on the KV buffers.

Inputs (b rows, n nodes, t positions with the nodes in them, h and l row selections):
    embeds         [b, n, d]      token embeddings, scaled
    position_ids   [b, n]         int64, length + depth
    seqlens_k      [b]            int32, t of the row - 1
    query_seqlens  [b]            int32, nodes of the row; the rest of its n is padding
    total          []             int32, the largest t
    bias.{window}  [1 or b, 1, n, t]   0 where a node may look, very negative elsewhere; one a distinct window
    cos, sin       [capacity, rotated / 2]   and cos_local, sin_local where windowed layers rotate otherwise
    hidden_rows    [h]            int64 into the b * n nodes;  logit_rows [l] int64 into the h hidden states
    past.{j}       [b, kv_heads, capacity, head_dim]   bound to the same memory as present.{j}
Outputs: hidden [h, d] after the final norm, logits [l, V], present.{j}.
"""

from __future__ import annotations

import numpy as np

from medusakit.models.spec import ModelSpec, WeightSource
from medusakit.runtimes.onnx.graph import GraphWriter
from medusakit.runtimes.onnx.linears import emit_linear


def build_decoder(source: WeightSource, graph: GraphWriter) -> None:
    """Write the whole graph of `source` into `graph` and save it."""
    _Decoder(source, graph).build()
    graph.save()


class _Decoder:
    def __init__(self, source: WeightSource, graph: GraphWriter) -> None:
        self._source = source
        self._spec: ModelSpec = source.spec
        self._graph = graph
        self._bias_names = frozenset(name for name in source.names() if name.endswith("_bias"))

    def build(self) -> None:
        self._declare_inputs()
        spec, graph = self._spec, self._graph
        residual = "embeds"
        normed = self._norm(residual, "layers.0.attn_norm")
        for layer in range(spec.num_layers):
            update = self._attention(layer, normed)
            residual, normed = self._add_norm(residual, update, f"layers.{layer}.ffn_norm")
            update = self._feed_forward(layer, normed)
            last = layer + 1 == spec.num_layers
            residual, normed = self._add_norm(residual, update, "final_norm" if last else f"layers.{layer + 1}.attn_norm")
        flat = graph.node("Reshape", [normed, graph.weight("shape.flat", np.array([-1, spec.hidden_size]))], "flat")
        graph.node("Gather", [flat, "hidden_rows"], "hidden", axis=0)
        graph.output("hidden", np.float32, ["h", spec.hidden_size])
        self._lm_head(graph.node("Gather", ["hidden", "logit_rows"], "head_in", axis=0))

    def _declare_inputs(self) -> None:
        spec, graph = self._spec, self._graph
        graph.input("embeds", np.float32, ["b", "n", spec.hidden_size])
        graph.input("position_ids", np.int64, ["b", "n"])
        graph.input("seqlens_k", np.int32, ["b"])
        graph.input("query_seqlens", np.int32, ["b"])
        graph.input("total", np.int32, [])
        for window in sorted(set(spec.windows)):
            graph.input(bias_name(window), np.float32, ["bias_rows", 1, "n", "t"])
        graph.input("cos", np.float32, ["positions", spec.rope.dim // 2])
        graph.input("sin", np.float32, ["positions", spec.rope.dim // 2])
        if spec.rope_local is not None:
            graph.input("cos_local", np.float32, ["positions", spec.rope_local.dim // 2])
            graph.input("sin_local", np.float32, ["positions", spec.rope_local.dim // 2])
        graph.input("hidden_rows", np.int64, ["h"])
        graph.input("logit_rows", np.int64, ["l"])
        kv_shape = ["b", spec.num_kv_heads, "capacity", spec.head_dim]
        for j in range(2 * spec.num_layers):
            graph.input(f"past.{j}", np.float32, kv_shape)
            graph.output(f"present.{j}", np.float32, kv_shape)

    def _attention(self, layer: int, x: str) -> str:
        spec, graph, at = self._spec, self._graph, f"layers.{layer}"
        window = spec.windows[layer]
        local = "_local" if window and spec.rope_local is not None else ""
        query, key, value = self._qkv(layer, x)
        past = [f"past.{2 * layer}", f"past.{2 * layer + 1}"]
        present = [f"present.{2 * layer}", f"present.{2 * layer + 1}"]
        tables = [f"cos{local}", f"sin{local}"]
        # inputs 11 to 15 (sink, cache scales, norm weights) are not used
        inputs = [query, key, value, *past, "seqlens_k", "total", *tables, "position_ids", bias_name(window),
                  "", "", "", "", "", "query_seqlens"]
        scale = spec.head_dim**-0.5 if spec.attn_scale is None else spec.attn_scale
        graph.multi("GroupQueryAttention", inputs, [f"{at}.attention", *present], contrib=True, num_heads=spec.num_heads,
                    kv_num_heads=spec.num_kv_heads, do_rotary=1, scale=scale)
        update = self._linear(f"{at}.attention", f"{at}.o")
        return self._norm(update, f"{at}.post_attn_norm") if spec.sandwich_norms else update

    def _qkv(self, layer: int, x: str) -> tuple[str, str, str]:
        """One packed tensor ("" for key and value), or three where queries and keys are normed apart."""
        at = f"layers.{layer}"
        if not self._spec.qk_norm:
            return self._linear(x, f"{at}.q", f"{at}.k", f"{at}.v"), "", ""
        query, key, value = (self._linear(x, f"{at}.{part}") for part in "qkv")
        return self._head_norm(query, f"{at}.q_norm"), self._head_norm(key, f"{at}.k_norm"), value

    def _head_norm(self, x: str, name: str) -> str:
        """RMS norm of every head apart: [b, n, heads * head_dim], same shape out."""
        graph = self._graph
        heads = graph.node("Reshape", [x, graph.weight("shape.heads", np.array([0, 0, -1, self._spec.head_dim]))], f"{name}.in")
        normed = self._norm(heads, name)
        return graph.node("Reshape", [normed, graph.weight("shape.merged", np.array([0, 0, -1]))], f"{name}.merged")

    def _feed_forward(self, layer: int, x: str) -> str:
        graph, at = self._graph, f"layers.{layer}"
        gate = self._linear(x, f"{at}.gate")
        if self._spec.activation == "silu":
            active = graph.node("QuickGelu", [gate], f"{at}.act", contrib=True, alpha=1.0)
        else:
            active = graph.node("FastGelu", [gate], f"{at}.act", contrib=True)
        product = graph.node("Mul", [active, self._linear(x, f"{at}.up")], f"{at}.product")
        update = self._linear(product, f"{at}.down")
        return self._norm(update, f"{at}.post_ffn_norm") if self._spec.sandwich_norms else update

    def _lm_head(self, x: str) -> None:
        graph, softcap = self._graph, self._spec.final_softcap
        tensor = self._source.tensor("embed" if self._spec.tied_embeddings else "lm_head")
        scores = emit_linear(graph, x, "logits" if softcap is None else "raw_logits", [tensor])
        if softcap is not None:
            cap = graph.weight("softcap", np.array(softcap, np.float32))
            graph.node("Mul", [graph.node("Tanh", [graph.node("Div", [scores, cap], "capped.in")], "capped"), cap], "logits")
        graph.output("logits", np.float32, ["l", self._spec.vocab_size])

    def _linear(self, x: str, *names: str) -> str:
        """The named tensors as one product, with their biases where the model has them."""
        graph = self._graph
        out = emit_linear(graph, x, names[0], [self._source.tensor(name) for name in names])
        biases = [f"{name}_bias" for name in names if f"{name}_bias" in self._bias_names]
        if not biases:
            return out
        bias = np.concatenate([self._source.tensor(name).f32() for name in biases])
        return graph.node("Add", [out, graph.weight(f"{names[0]}.bias", bias)], f"{names[0]}.biased")

    def _norm(self, x: str, name: str) -> str:
        weight = self._norm_weight(name)
        return self._graph.node("SimplifiedLayerNormalization", [x, weight], f"{name}.out", axis=-1,
                                epsilon=self._spec.norm_eps, stash_type=1)

    def _add_norm(self, residual: str, update: str, name: str) -> tuple[str, str]:
        """(residual + update, its RMS norm)."""
        outputs = [f"{name}.out", "", "", f"{name}.sum"]
        self._graph.multi("SkipSimplifiedLayerNormalization", [residual, update, self._norm_weight(name)], outputs,
                          contrib=True, epsilon=self._spec.norm_eps)
        return f"{name}.sum", f"{name}.out"

    def _norm_weight(self, name: str) -> str:
        return self._graph.weight(f"{name}.weight", self._source.tensor(name).f32())


def bias_name(window: int) -> str:
    return f"bias.{window}"
