"""From raw logits to the distribution a request asked for. Always on a copy: a node's logits are shared.

Order: repetition penalty, presence and frequency penalty, logit bias (`Adjustments`, which greedy decoding uses too);
then temperature, top-k, top-p, min-p (`Filter`), each on what the one before left, renormalised.

Semantics:
- repetition_penalty: transformers' (CTRL, arXiv 1909.05858): every token of prompt and output has its logit divided by
  the penalty where positive, multiplied where negative.
- presence_penalty, frequency_penalty: OpenAI's formula, over the output alone (as vLLM counts):
  logit - presence * (count > 0) - frequency * count.
- logit_bias: OpenAI's: added to the logit, last, so that it is a shift of what would be used otherwise.
- top_k, top_p: transformers': ties with the k-th value survive; top-p keeps the most probable ids (lower id first on
  ties) until their mass reaches top_p, the one that crosses included. min_p: p >= min_p * max p.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from medusakit.errors import FETCH_AGAIN, RuntimeFailure
from medusakit.settings import SamplingParams
from medusakit.tree.topology import FloatArray, IntArray
from medusakit.verify.history import TokenCounts

# Top-p looks for its survivors this far below the best score first, so that it sorts few ids.
CUTS = (-1.0, -1.5, -2.0, -3.0, -4.0, -6.0, -8.0, -12.0, -16.0, -24.0, -32.0)


class Adjustments:
    """Penalties and bias of one sequence. Caches token counts, so one instance serves one sequence."""

    def __init__(self, params: SamplingParams, num_prompt_tokens: int) -> None:
        self._repetition = np.float32(params.repetition_penalty)
        self._presence = np.float32(params.presence_penalty)
        self._frequency = np.float32(params.frequency_penalty)
        self._bias_ids = np.array(list(params.logit_bias), dtype=np.int64)
        self._bias = np.array(list(params.logit_bias.values()), dtype=np.float32)
        self._counts = TokenCounts(num_prompt_tokens) if _penalises(params) else None

    @classmethod
    def of(cls, params: SamplingParams, num_prompt_tokens: int) -> Adjustments | None:
        """None where the request leaves the logits as they are."""
        if not _penalises(params) and not params.logit_bias:
            return None
        return cls(params, num_prompt_tokens)

    def apply(self, logits: FloatArray, history: Sequence[int]) -> FloatArray:
        """A fresh [V] float32 array: the logits after `history` with penalties and bias."""
        adjusted = np.array(logits, dtype=np.float32)
        if self._counts is not None:
            seen = self._counts.at(history)
            raw = adjusted[seen.ids]
            weighed = np.where(raw > 0, raw / self._repetition, raw * self._repetition)
            adjusted[seen.ids] = weighed - self._presence * (seen.output > 0) - self._frequency * seen.output
        adjusted[self._bias_ids] += self._bias
        return adjusted


def adjusted(logits: FloatArray, adjustments: Adjustments | None, history: Sequence[int]) -> FloatArray:
    """[V]: the logits after `history` as a request adjusts them; the same array where it does not."""
    return logits if adjustments is None else adjustments.apply(logits, history)


def _penalises(params: SamplingParams) -> bool:
    return params.repetition_penalty != 1 or params.presence_penalty != 0 or params.frequency_penalty != 0


@dataclass(frozen=True, slots=True)
class Survivors:
    """The ids that may be drawn, and the distribution over them: softmax of z.

    ids  [m] int64 ascending, None for the whole vocabulary
    z    [m] float32, scaled logits less their maximum: the best survivor has 0
    """

    ids: IntArray | None
    z: FloatArray

    def token(self, index: int) -> int:
        return index if self.ids is None else int(self.ids[index])

    def index(self, token_id: int) -> int | None:
        """Where the token stands among the survivors, None if it is not one."""
        if self.ids is None:
            return token_id
        at = int(np.searchsorted(self.ids, token_id))
        return at if at < len(self.ids) and self.ids[at] == token_id else None

    def where(self, keep: IntArray) -> Survivors:
        return Survivors(keep if self.ids is None else self.ids[keep], self.z[keep])


@dataclass(frozen=True, slots=True)
class Filter:
    """Temperature (above 0), top_k (0: off), top_p (1: off), min_p (0: off)."""

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0

    def apply(self, logits: FloatArray) -> Survivors:
        top = logits.max()
        if not np.isfinite(top):
            raise RuntimeFailure(
                f"the model's highest score is {top}: its weights or its input are broken", hint=FETCH_AGAIN
            )
        z = logits - top
        if self.temperature != 1:
            z *= np.float32(1 / self.temperature)
        kept = Survivors(None, z)
        if 0 < self.top_k < len(z):
            kept = _top_k(kept, self.top_k)
        if self.top_p < 1:
            kept = _top_p(kept, self.top_p)
        if self.min_p > 0:
            kept = kept.where(np.flatnonzero(kept.z >= np.float32(np.log(self.min_p))))
        return kept


def _top_k(kept: Survivors, k: int) -> Survivors:
    sample = np.sort(kept.z[::64])[::-1]  # a guess of where the k-th value lies, so that few ids are partitioned
    above = np.flatnonzero(kept.z >= sample[min(k // 32 + 8, len(sample) - 1)])
    if len(above) >= k:
        kept = kept.where(above)
    kth = np.partition(kept.z, len(kept.z) - k)[len(kept.z) - k]
    return kept.where(np.flatnonzero(kept.z >= kth))


def _top_p(kept: Survivors, top_p: float) -> Survivors:
    weights = np.exp(kept.z)
    wanted = top_p * float(weights.sum(dtype=np.float64))
    for cut in CUTS:
        above = np.flatnonzero(kept.z >= cut)
        if weights[above].sum(dtype=np.float64) >= wanted:
            kept, weights = kept.where(above), weights[above]
            break
    descending = np.sort(weights)[::-1]
    num_kept = min(int(np.searchsorted(np.cumsum(descending, dtype=np.float64), wanted)) + 1, len(weights))
    edge = descending[num_kept - 1]
    keep = weights > edge
    keep[np.flatnonzero(weights == edge)[: num_kept - np.count_nonzero(keep)]] = True
    return kept.where(np.flatnonzero(keep))
