"""The line under an answer, from the numbers of its generation. A figure that was not measured is left out."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from medusakit.engine.events import GenerationResult, GenerationStats

if TYPE_CHECKING:
    from medusakit.llm import LLM


def footer(
    result: GenerationResult, *, plain_tokens_per_s: float | None = None, memory_bytes: int | None = None
) -> str:
    """One line, e.g. `132 tok · 88.4 tok/s (plain 41.0 · 2.16x) · tau 2.90 · depth 81/58/34% · first 0.21 s · 5.8 GB`.

    plain_tokens_per_s  measured or calibrated speed of plain decoding, None if there is none
    """
    stats = result.stats
    parts = [f"{stats.num_tokens} tok", _speed(stats, plain_tokens_per_s), _speculation(stats)]
    parts.append(f"first {stats.prefill_s:.2f} s")
    if memory_bytes is not None:
        parts.append(f"{memory_bytes / 1e9:.1f} GB")
    parts.append(_ending(result))
    return "  " + " · ".join(part for part in parts if part)


def answer_footer(llm: LLM, result: GenerationResult) -> str:
    """The footer of an answer that `llm` just gave; plain decoding's speed is the one measured when it was loaded."""
    cost = llm.parts.cost
    plain = None if cost is None else 1.0 / cost.seconds(1)
    line = footer(result, plain_tokens_per_s=plain, memory_bytes=peak_memory_bytes())
    rounded = llm.runtime.capabilities.exact != "bitwise-ties" and bool(result.stats.offered_by_depth)
    return f"{line} · exact up to numerical ties" if rounded else line


def depth_shares(stats: GenerationStats) -> list[float]:
    """Share of the steps offering depth d that accepted it, d = 1, 2, ..."""
    pairs = zip(stats.accepted_by_depth, stats.offered_by_depth, strict=True)
    return [accepted / offered if offered else 0.0 for accepted, offered in pairs]


def _speed(stats: GenerationStats, plain: float | None) -> str:
    if not stats.tokens_per_s:
        return ""
    speed = f"{stats.tokens_per_s:.1f} tok/s"
    if not plain or not stats.offered_by_depth:
        return speed
    return f"{speed} (plain {plain:.1f} · {stats.tokens_per_s / plain:.2f}x)"


def _speculation(stats: GenerationStats) -> str:
    if not stats.offered_by_depth:
        return "plain"
    depths = "/".join(f"{100 * share:.0f}" for share in depth_shares(stats))
    return f"tau {stats.tau:.2f} · depth {depths}%"


def _ending(result: GenerationResult) -> str:
    notes = []
    if not result.lossless:
        notes.append("lossy: typical acceptance")
    if result.finish_reason == "length":
        notes.append("cut at the token limit")
    if result.finish_reason == "cancelled":
        notes.append("stopped")
    return " · ".join(notes)


def peak_memory_bytes() -> int | None:
    """Largest resident size of this process so far; None where the system does not tell."""
    try:
        import resource
    except ImportError:
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
