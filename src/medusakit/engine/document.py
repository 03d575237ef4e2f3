"""A generation as plain values, for --json and for /medusa/generate."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Any

from medusakit.engine.events import GenerationResult, GenerationStats, TokenEvent


def generation(result: GenerationResult) -> dict[str, Any]:
    """A result with its tokens and their provenance."""
    return {
        "text": result.text,
        "finish_reason": result.finish_reason,
        "seed": result.seed,
        "lossless": result.lossless,
        "acceptance": result.acceptance,
        "stats": statistics(result.stats),
        "tokens": [token(event) for event in result.events],
    }


def statistics(stats: GenerationStats) -> dict[str, Any]:
    """Counts and times, and the figures derived from them."""
    derived = {
        "decode_s": stats.decode_s,
        "tau": stats.tau,
        "nodes_per_step": stats.nodes_per_step,
        "tokens_per_s": stats.tokens_per_s,
        "acceptance_by_depth": depth_shares(stats),
    }
    return asdict(stats) | derived


def depth_shares(stats: GenerationStats) -> list[float]:
    """Share of the steps offering depth d that accepted it, d = 1, 2, ..."""
    pairs = zip(stats.accepted_by_depth, stats.offered_by_depth, strict=True)
    return [accepted / offered if offered else 0.0 for accepted, offered in pairs]


def token(event: TokenEvent) -> dict[str, Any]:
    """One emitted token with its provenance. JSON knows no NaN."""
    values = asdict(event)
    values["logprob"] = None if math.isnan(event.logprob) else event.logprob
    return values
