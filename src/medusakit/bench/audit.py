"""`medusa verify`: is what the tree pass computes what plain decoding computes, node by node and token by token?

Node audit: every node of the trees that real decoding verifies is compared with a plain pass over the node's own path,
on a second row of the same runtime. A mask that leaks one sibling shows at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from medusakit.engine.engine import Engine
from medusakit.runtimes.base import Runtime, Scores
from medusakit.settings import SamplingParams
from medusakit.tree.topology import FloatArray, Tree

KL_LIMIT = 1e-8  # fp32; formats that quantise activations are judged by flips per 1,000 tokens instead


@dataclass(slots=True)
class NodeAudit:
    """What the node audit saw. deep_nodes: depth 3 and more; later_siblings: not the first child of their parent."""

    nodes: int = 0
    deep_nodes: int = 0
    later_siblings: int = 0
    kl_max: float = 0.0
    logit_diff_max: float = 0.0
    argmax_flips: int = 0

    def see(self, plain: FloatArray, tree: FloatArray, depth: int, is_first: bool) -> None:
        """Count one node: its logits by a plain pass and by the tree pass, each [V]."""
        self.nodes += 1
        self.deep_nodes += depth >= 3
        self.later_siblings += not is_first
        self.kl_max = max(self.kl_max, kl_divergence(plain, tree))
        self.logit_diff_max = max(self.logit_diff_max, float(np.abs(plain - tree).max()))
        self.argmax_flips += int(plain.argmax() != tree.argmax())


def kl_divergence(left: FloatArray, right: FloatArray) -> float:
    """KL(softmax(left) || softmax(right)) in nats, in float64."""
    p, q = _log_softmax(left), _log_softmax(right)
    return max(0.0, float((np.exp(p) * (p - q)).sum()))


@dataclass(slots=True)
class Recorder:
    """A `Runtime` that passes everything on and keeps a copy of every tree pass of one row."""

    inner: Runtime
    passes: list[tuple[Tree, FloatArray]] = field(default_factory=list)

    def forward(self, trees: Sequence[tuple[int, Tree]]) -> Sequence[Scores]:
        scores = self.inner.forward(trees)
        for (_, tree), row_scores in zip(trees, scores, strict=True):
            self.passes.append((tree, np.stack([row_scores.logits(node) for node in range(tree.num_nodes)])))
        return scores

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


def audit_nodes(
    engine: Engine,
    prompts: Sequence[Sequence[int]],
    *,
    num_nodes: int,
    max_tokens: int = 64,
    on_node: Callable[[int], None] | None = None,
) -> NodeAudit:
    """Decode the prompts with the engine's own plan and audit the trees until `num_nodes` nodes are seen.

    The runtime needs room for two rows. Each prompt is decoded at most once; fewer nodes are seen if they run out.
    """
    audit = NodeAudit()
    recorder = Recorder(engine.runtime)
    recorded = Engine(recorder, engine.tokenizer, engine.controller)
    for ids in prompts:
        if audit.nodes >= num_nodes:
            break
        session = recorded.start(ids, SamplingParams(max_tokens=max_tokens, ignore_eos=True))
        shadow = _Shadow(engine.runtime)
        try:
            shadow.extend(session.ids[:-1])
            while session.running and audit.nodes < num_nodes:
                held = len(session.ids) - 1
                recorded.step()
                tree, logits = recorder.passes.pop()
                shadow.audit(tree, logits, audit)
                shadow.extend(session.ids[held : engine.runtime.length(session.row)])
                if on_node is not None:
                    on_node(audit.nodes)
        finally:
            shadow.close()
            recorded.finish(session)
    return audit


class _Shadow:
    """A row that only ever sees plain passes."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._row = runtime.add_row()

    def extend(self, ids: Sequence[int]) -> None:
        """Take over committed ids, one plain pass each (the first ones, the prompt, by prefill)."""
        ids = list(ids)
        if ids and self._runtime.length(self._row) == 0:
            self._runtime.prefill(self._row, ids)
            return
        for token in ids:
            self._plain(token)

    def audit(self, tree: Tree, logits: FloatArray, into: NodeAudit) -> None:
        """Depth first through the tree, so that each node costs one pass after its parent's."""
        base = self._runtime.length(self._row)
        topology = tree.topology
        pending = [0]
        while pending:
            node = pending.pop()
            depth = int(topology.depths[node])
            self._runtime.truncate(self._row, base + depth)
            plain = self._plain(int(tree.tokens[node]))
            parent = int(topology.parents[node])
            is_first = parent < 0 or topology.children[parent][0] == node
            into.see(plain, logits[node], depth, is_first)
            pending.extend(reversed(topology.children[node]))
        self._runtime.truncate(self._row, base)

    def close(self) -> None:
        self._runtime.drop_row(self._row)

    def _plain(self, token: int) -> FloatArray:
        (scores,) = self._runtime.forward([(self._row, Tree.plain(token))])
        logits = scores.logits(0).copy()
        self._runtime.commit(self._row, [0])
        return logits


def _log_softmax(logits: FloatArray) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    z = logits.astype(np.float64)
    z -= z.max()
    log_softmax: np.ndarray[tuple[int, ...], np.dtype[np.float64]] = z - np.log(np.exp(z).sum())
    return log_softmax
