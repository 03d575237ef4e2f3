"""What the model itself says about each token, for requests that ask: raw scores, temperature 1, before penalties."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from medusakit.runtimes.base import Scores
from medusakit.tree.topology import Draft, FloatArray
from medusakit.verify.base import Acceptance, Top, Verdict, guide


@dataclass(frozen=True, slots=True)
class ReportingRule:
    """Another exact rule, whose verdicts come with the model's log p of the pick and of the `num_top` best tokens."""

    rule: Acceptance
    num_top: int
    path_weight: float = 0.0

    @property
    def name(self) -> str:
        return self.rule.name

    @property
    def lossless(self) -> bool:
        return self.rule.lossless

    def after(self, offered: int, accepted: int) -> ReportingRule:
        return self

    def guided(self, draft: Draft, history: Sequence[int]) -> Draft:
        return guide(self.rule, draft, history)

    def decide(self, scores: Scores, node: int, children: Sequence[tuple[int, int]], history: Sequence[int]) -> Verdict:
        verdict = self.rule.decide(scores, node, children, history)
        logprob, top = token_logprobs(scores.logits(node), verdict.pick, self.num_top)
        return replace(verdict, logprob=logprob, top=top)


def token_logprobs(logits: FloatArray, token_id: int, num_top: int) -> tuple[float, Top]:
    """log p of the token under softmax of logits [V], and the best `num_top` tokens with theirs, lower id on ties."""
    top = logits.max()
    shift = float(top) + float(np.log(np.exp(logits - top).sum(dtype=np.float64)))
    if not num_top:
        return float(logits[token_id]) - shift, ()
    edge = np.partition(logits, len(logits) - num_top)[len(logits) - num_top] if num_top < len(logits) else -np.inf
    ids = np.flatnonzero(logits >= edge)
    best = ids[np.argsort(-logits[ids], kind="stable")][:num_top]
    return float(logits[token_id]) - shift, tuple((int(index), float(logits[index]) - shift) for index in best)
