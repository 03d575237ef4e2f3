"""Figures of paired runs: the same prompts answered plainly and with heads. Pure functions of results."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from medusakit.engine.events import GenerationResult

PLAIN, MEDUSA = "plain", "medusa"


@dataclass(frozen=True, slots=True)
class Pair:
    """One prompt answered both ways, in one round."""

    prompt: str
    plain: GenerationResult
    medusa: GenerationResult


@dataclass(frozen=True, slots=True)
class Difference:
    """The first token at which the two answers part. gap: between the model's two best scores there, if it was read."""

    prompt: str
    position: int
    plain_id: int | None
    medusa_id: int | None
    gap: float | None = None


def mode_summary(results: Sequence[GenerationResult]) -> dict[str, Any]:
    """Sums over results, the prefill's token and time apart: speed = sum(tokens) / sum(decode seconds)."""
    stats = [result.stats for result in results]
    tokens = sum(one.num_tokens - 1 for one in stats)
    steps = sum(one.num_steps for one in stats)
    split = [sum(values) for values in zip(*((one.forward_s, one.draft_s, one.other_s) for one in stats), strict=True)]
    seconds = sum(split)
    return {
        "tokens": tokens,
        "seconds": seconds,
        "tokens_per_s": tokens / seconds if seconds else 0.0,
        "tau": tokens / steps if steps else 1.0,
        "nodes_per_step": sum(one.num_nodes for one in stats) / steps if steps else 1.0,
        "accepted_by_depth": _shares(results),
        "time_split": dict(
            zip(("forward", "draft", "other"), (part / (seconds or 1.0) for part in split), strict=True)
        ),
        "prefill_s": sum(one.prefill_s for one in stats),
    }


def speedup(pairs: Sequence[Pair], *, rounds: int = 2000, seed: int = 0) -> dict[str, Any]:
    """Ratio of the two speeds over all pairs, with a bootstrap 95 % interval over prompts."""
    prompts = sorted({pair.prompt for pair in pairs})
    sums = np.array([_sums([pair for pair in pairs if pair.prompt == prompt]) for prompt in prompts])
    random = np.random.default_rng(seed)
    draws = random.integers(0, len(prompts), (rounds, len(prompts)))
    ratios = _ratio(sums[draws].sum(axis=1))
    low, high = np.quantile(ratios, (0.025, 0.975))
    return {"ratio": float(_ratio(sums.sum(axis=0))), "ci95": [float(low), float(high)]}


def first_difference(pair: Pair) -> Difference | None:
    """Where the two answers part, or None if they are equal."""
    plain, medusa = pair.plain.token_ids, pair.medusa.token_ids
    for position in range(max(len(plain), len(medusa))):
        left = plain[position] if position < len(plain) else None
        right = medusa[position] if position < len(medusa) else None
        if left != right:
            return Difference(pair.prompt, position, left, right)
    return None


def _sums(pairs: Sequence[Pair]) -> tuple[float, float, float, float]:
    """Tokens and seconds of plain, then of Medusa."""
    plain = mode_summary([pair.plain for pair in pairs])
    medusa = mode_summary([pair.medusa for pair in pairs])
    return plain["tokens"], plain["seconds"], medusa["tokens"], medusa["seconds"]


def _ratio(sums: np.ndarray[Any, np.dtype[np.float64]]) -> Any:
    plain_tokens, plain_s, medusa_tokens, medusa_s = np.moveaxis(sums, -1, 0)
    return (medusa_tokens / medusa_s) / (plain_tokens / plain_s)


def _shares(results: Sequence[GenerationResult]) -> list[float]:
    depth = max((len(result.stats.offered_by_depth) for result in results), default=0)
    offered, accepted = [0] * depth, [0] * depth
    for result in results:
        for place, count in enumerate(result.stats.offered_by_depth):
            offered[place] += count
            accepted[place] += result.stats.accepted_by_depth[place]
    return [left / right if right else 0.0 for left, right in zip(accepted, offered, strict=True)]
