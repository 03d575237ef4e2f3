"""The attention block of a layer, from plain operators, so that a node's result has the same bits in any tree.

Fused attention kernels add over positions in an order that depends on where a position lies, which changes the last
bit; formats that quantise activations amplify that to logits that differ by whole units. Here every sum over positions
is an element of a matrix product, which ONNX Runtime's CPU kernels (MLAS) compute as one chain of fused multiply-adds
in the order of the cells, so that a cell whose weight is exactly 0 changes nothing. Two rules keep it so:
- The chain is cut every 256 cells for products with 64 columns, but every 1024 for 16 and less: values are multiplied
  in slices of 16 columns, and `cells` keeps trees off the cuts.
- A product with a single row and a factor of 1 takes another kernel, so factors are never 1 (powers of two are exact).
The denominator of the softmax is such a product too, with a matrix of ones.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from medusakit.models.spec import StoredTensor, WeightSource
from medusakit.runtimes.onnx.graph import GraphWriter
from medusakit.runtimes.onnx.heads import HeadLayout
from medusakit.runtimes.onnx.kv import SLICE
from medusakit.runtimes.onnx.linears import LinearWriter


class AttentionWriter:
    """Shapes below: b rows of n nodes (t = b * n), kv key heads, each read by g query heads, c cells, s = size / 16."""

    def __init__(self, source: WeightSource, graph: GraphWriter, linears: LinearWriter) -> None:
        self._source, self._spec, self._graph, self._linears = source, source.spec, graph, linears
        self._layout = HeadLayout.of(source.spec)
        self._names = frozenset(source.names())
        rest = graph.weight("shape.rest", np.array([-1]))
        graph.node("Concat", [graph.node("Shape", ["position_ids"], "shape.rows"), rest], "shape.attention", axis=0)
        for window in sorted(set(self._spec.windows)):
            self._bias_by_head(bias_name(window))

    def emit(self, layer: int, x: str) -> str:
        """x [t, d], normed, to the attention's update of the residual, [t, d]."""
        at = f"layers.{layer}"
        query, key, value = self._qkv(layer, x)
        kv, size = self._spec.num_kv_heads, self._layout.size
        keys = self._append(f"keys.{layer}", self._shaped(key, [0, 0, kv, size]), "key_cells")
        values = self._append(f"values.{layer}", self._shaped(value, [0, 0, kv, size // SLICE, SLICE]), "value_cells")
        weights = self._weights(at, query, keys, bias_name(self._spec.windows[layer]))
        return self._project(self._flat(self._mean(at, weights, values)), f"{at}.o")

    def _weights(self, at: str, query: str, keys: str, bias: str) -> str:
        """exp(score - largest score of the node), [b, kv, 1, n * g, c]; not yet divided by its sum."""
        graph = self._graph
        scale = self._spec.attn_scale or self._spec.head_dim**-0.5
        halves = 2 if scale == 1 else 1
        scores = graph.node("FusedMatMul", [query, keys], f"{at}.scores", contrib=True, transB=1, alpha=scale / halves)
        if halves == 2:
            scores = graph.node("Add", [scores, scores], f"{at}.scores.doubled")
        scores = graph.node("Add", [scores, f"{bias}.by_head"], f"{at}.scores.open")
        top = graph.node("ReduceMax", [scores, graph.weight("axis.last", np.array([-1]))], f"{at}.top", keepdims=1)
        return graph.node("Exp", [graph.node("Sub", [scores, top], f"{at}.scores.below")], f"{at}.weights")

    def _mean(self, at: str, weights: str, values: str) -> str:
        """Values averaged by weight: [t, heads * size]."""
        graph, spec = self._graph, self._spec
        total = graph.node("FusedMatMul", [weights, values], f"{at}.total", contrib=True, alpha=0.5)
        share = graph.node("FusedMatMul", [weights, "ones"], f"{at}.share", contrib=True, alpha=0.5)
        mean = graph.node("Div", [total, share], f"{at}.mean")  # [b, kv, s, n * g, 16]
        groups = spec.num_heads // spec.num_kv_heads
        split = self._shaped(mean, [0, 0, 0, -1, groups, SLICE])
        by_node = graph.node("Transpose", [split], f"{at}.by_node", perm=[0, 3, 1, 4, 2, 5])
        return self._shaped(by_node, [-1, spec.num_heads * self._layout.size])

    def _append(self, cache: str, update: str, cells: str) -> str:
        """Write the nodes' rows into the cache, whose memory is the output's too; readers depend on the output."""
        return self._graph.node("ScatterND", [f"past.{cache}", cells, update], f"present.{cache}")

    def _qkv(self, layer: int, x: str) -> tuple[str, str, str]:
        """Query [b, kv, 1, n * g, size], key and value [b, n, kv * size]; query and key rotated."""
        at, spec, size = f"layers.{layer}", self._spec, self._layout.size
        heads, kv = spec.num_heads, spec.num_kv_heads
        if spec.qk_norm:
            query, key, value = (self._project(x, f"{at}.{part}") for part in "qkv")
            query = self._rotated(layer, self._by_row(self._head_norm(query, f"{at}.q_norm")), heads)
            key = self._rotated(layer, self._by_row(self._head_norm(key, f"{at}.k_norm")), kv)
            return self._by_kv_head(query), key, self._by_row(value)
        packed = self._by_row(self._project(x, f"{at}.q", f"{at}.k", f"{at}.v"))
        both, value = self._split(packed, f"{at}.qk", f"{at}.value", [(heads + kv) * size, kv * size])
        turned = self._rotated(layer, both, heads + kv)
        query, key = self._split(turned, f"{at}.query", f"{at}.key", [heads * size, kv * size])
        return self._by_kv_head(query), key, value

    def _rotated(self, layer: int, x: str, heads: int) -> str:
        windowed = self._spec.windows[layer] and self._spec.rope_local is not None
        tables = ["cos_local", "sin_local"] if windowed else ["cos", "sin"]
        turned = 2 * self._layout.half
        part = {} if turned == self._layout.size else {"rotary_embedding_dim": turned}
        return self._graph.node(
            "RotaryEmbedding", [x, "position_ids", *tables], f"{x}.rotated", contrib=True, num_heads=heads, **part
        )

    def _split(self, x: str, first: str, second: str, sizes: list[int]) -> tuple[str, str]:
        parts = self._graph.weight(f"split.{sizes[0]}.{sizes[1]}", np.array(sizes))
        self._graph.multi("Split", [x, parts], (first, second), axis=-1)
        return first, second

    def _by_kv_head(self, query: str) -> str:
        """[b, n, heads * size] to [b, kv, 1, n * g, size]: query heads that share keys are rows of one product."""
        spec, size = self._spec, self._layout.size
        split = self._shaped(query, [0, 0, spec.num_kv_heads, spec.num_heads // spec.num_kv_heads, size])
        turned = self._graph.node("Transpose", [split], f"{query}.turned", perm=[0, 2, 1, 3, 4])
        return self._shaped(turned, [0, 0, 1, -1, size])

    def _bias_by_head(self, bias: str) -> None:
        """[b, n, c] to [b, 1, 1, n * g, c], once a pass."""
        graph, groups = self._graph, self._spec.num_heads // self._spec.num_kv_heads
        raised = graph.node("Unsqueeze", [bias, graph.weight("axes.bias", np.array([1, 2, 4]))], f"{bias}.raised")
        times = graph.weight("shape.groups", np.array([1, 1, 1, 1, groups, 1]))
        repeated = graph.node("Expand", [raised, times], f"{bias}.repeated")
        columns = graph.node("Shape", [bias], f"{bias}.columns", start=2)
        shape = [graph.weight("shape.bias", np.array([0, 1, 1, -1])), columns]
        shape_by_head = graph.node("Concat", shape, f"{bias}.shape", axis=0)
        graph.node("Reshape", [repeated, shape_by_head], f"{bias}.by_head")

    def _project(self, x: str, *names: str) -> str:
        fit: Callable[[StoredTensor], StoredTensor] = (lambda t: t) if names[0].endswith(".o") else self._layout.spread
        biases = [f"{name}_bias" for name in names if f"{name}_bias" in self._names]
        tensors, added = ([fit(self._source.tensor(name)) for name in group] for group in (names, biases))
        return self._linears.emit(x, names[0], tensors, biases=added, normed=not names[0].endswith(".o"))

    def _shaped(self, x: str, shape: list[int]) -> str:
        name = "shape." + ".".join(map(str, shape))
        return self._graph.node("Reshape", [x, self._graph.weight(name, np.array(shape))], f"{x}.shaped")

    def _by_row(self, x: str) -> str:
        return self._graph.node("Reshape", [x, "shape.attention"], f"{x}.by_row")

    def _flat(self, mean: str) -> str:
        """[t, heads * size] to [t, heads * head_dim]."""
        graph, spec, layout = self._graph, self._spec, self._layout
        if layout.is_plain:
            return mean
        spread = self._shaped(mean, [-1, layout.size])
        gathered = graph.node("Gather", [spread, graph.weight("head_places", layout.places)], f"{mean}.own", axis=-1)
        return self._shaped(gathered, [-1, spec.num_heads * spec.head_dim])

    def _head_norm(self, x: str, name: str) -> str:
        """RMS norm of every head apart: [t * heads, size]."""
        graph, layout = self._graph, self._layout
        heads = self._shaped(x, [-1, layout.size])
        weight = self._source.tensor(name).f32()
        scale = graph.weight(f"{name}.weight", weight if layout.is_plain else layout.spread_norm(weight))
        epsilon = self._spec.norm_eps * layout.norm_share
        return graph.node(
            "SimplifiedLayerNormalization", [heads, scale], f"{name}.out", axis=-1, stash_type=1, epsilon=epsilon
        )


def bias_name(window: int) -> str:
    return f"bias.{window}"
