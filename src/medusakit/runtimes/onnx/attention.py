"""The attention block of a layer: projections, head norms, `GroupQueryAttention` in place on the KV buffers.

The kernel does rotary embedding by explicit positions, appends keys and values to the row's buffer, masks causally by
index and adds the bias; with every node after its parent, a bias that closes non-ancestors makes it tree attention.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from medusakit.models.spec import StoredTensor, WeightSource
from medusakit.runtimes.onnx.graph import GraphWriter
from medusakit.runtimes.onnx.heads import HeadLayout
from medusakit.runtimes.onnx.linears import LinearWriter


class AttentionWriter:
    def __init__(self, source: WeightSource, graph: GraphWriter, linears: LinearWriter) -> None:
        self._source, self._spec, self._graph, self._linears = source, source.spec, graph, linears
        self._layout = HeadLayout.of(source.spec)
        self._names = frozenset(source.names())
        rest = graph.weight("shape.rest", np.array([-1]))
        graph.node("Concat", [graph.node("Shape", ["position_ids"], "shape.rows"), rest], "shape.attention", axis=0)

    def emit(self, layer: int, x: str) -> str:
        """x [t, d], normed, to the attention's update of the residual, [t, d]."""
        spec, at = self._spec, f"layers.{layer}"
        outputs = [f"{at}.attention", f"present.{2 * layer}", f"present.{2 * layer + 1}"]
        self._graph.multi(
            "GroupQueryAttention",
            [*self._qkv(layer, x), *self._state(layer)],
            outputs,
            contrib=True,
            num_heads=spec.num_heads,
            kv_num_heads=spec.num_kv_heads,
            do_rotary=1,
            scale=spec.attn_scale or spec.head_dim**-0.5,
        )
        return self._project(self._flat(outputs[0]), f"{at}.o")

    def _state(self, layer: int) -> list[str]:
        """Inputs after query, key and value."""
        window = self._spec.windows[layer]
        local = "_local" if window and self._spec.rope_local is not None else ""
        unused = [""] * 5  # sink, cache scales, norm weights
        return [
            *(f"past.{2 * layer}", f"past.{2 * layer + 1}", "seqlens_k", "total"),
            *(f"cos{local}", f"sin{local}", "position_ids", bias_name(window)),
            *unused,
            "query_seqlens",
        ]

    def _qkv(self, layer: int, x: str) -> tuple[str, str, str]:
        """[b, n, ...]: one packed tensor ("" for key and value), or three where queries and keys are normed apart."""
        at = f"layers.{layer}"
        if not self._spec.qk_norm:
            return self._by_row(self._project(x, f"{at}.q", f"{at}.k", f"{at}.v")), "", ""
        query, key, value = (self._project(x, f"{at}.{part}") for part in "qkv")
        query, key = self._head_norm(query, f"{at}.q_norm"), self._head_norm(key, f"{at}.k_norm")
        return self._by_row(query), self._by_row(key), self._by_row(value)

    def _project(self, x: str, *names: str) -> str:
        fit: Callable[[StoredTensor], StoredTensor] = (lambda t: t) if names[0].endswith(".o") else self._layout.spread
        biases = [f"{name}_bias" for name in names if f"{name}_bias" in self._names]
        tensors, added = ([fit(self._source.tensor(name)) for name in group] for group in (names, biases))
        return self._linears.emit(x, names[0], tensors, biases=added)

    def _by_row(self, x: str) -> str:
        return self._graph.node("Reshape", [x, "shape.attention"], f"{x}.by_row")

    def _flat(self, attention: str) -> str:
        """[b, n, heads * size] to [t, heads * head_dim]."""
        graph, spec, layout = self._graph, self._spec, self._layout
        width = graph.weight("shape.heads", np.array([-1, spec.num_heads * spec.head_dim]))
        if not layout.is_plain:
            by_head = graph.weight("shape.head_size", np.array([-1, layout.size]))
            spread = graph.node("Reshape", [attention, by_head], f"{attention}.spread")
            places = graph.weight("head_places", layout.places)
            attention = graph.node("Gather", [spread, places], f"{attention}.gathered", axis=-1)
        return graph.node("Reshape", [attention, width], f"{attention}.flat")

    def _head_norm(self, x: str, name: str) -> str:
        """RMS norm of every head apart: [t * heads, size]."""
        graph, layout = self._graph, self._layout
        heads = graph.node("Reshape", [x, graph.weight("shape.head_size", np.array([-1, layout.size]))], f"{name}.in")
        weight = self._source.tensor(name).f32()
        scale = graph.weight(f"{name}.weight", weight if layout.is_plain else layout.spread_norm(weight))
        epsilon = self._spec.norm_eps * layout.norm_share
        return graph.node(
            "SimplifiedLayerNormalization", [heads, scale], f"{name}.out", axis=-1, stash_type=1, epsilon=epsilon
        )


def bias_name(window: int) -> str:
    return f"bias.{window}"
