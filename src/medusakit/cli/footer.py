"""The line under an answer, from the numbers of its generation. A figure that was not measured is left out.

What plain decoding would have taken was not measured, so no ratio is shown: `medusa compare` runs both.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from medusakit.engine.document import depth_shares
from medusakit.engine.events import GenerationResult, GenerationStats

if TYPE_CHECKING:
    from medusakit.llm import LLM


SHOWN_DEPTHS = 5  # matches of the text are drafted thirty deep


def footer(result: GenerationResult, *, memory_bytes: int | None = None) -> str:
    """One line, e.g. `132 tok · first 0.21 s, then 88.4 tok/s · tau 2.90 tok/step · depth 81/58/34% · 5.8 GB`.

    The speed is that of the tokens after the first, which prefill makes; so is tau (as in `compare` and `bench`).
    """
    stats = result.stats
    parts = [f"{stats.num_tokens} tok", _times(stats), _speculation(stats)]
    if memory_bytes is not None:
        parts.append(f"{memory_bytes / 1e9:.1f} GB")
    parts.append(_ending(result))
    return "  " + " · ".join(part for part in parts if part)


def answer_footer(llm: LLM, result: GenerationResult) -> str:
    """The footer of an answer that `llm` just gave, with what its weight format promises."""
    line = footer(result, memory_bytes=peak_memory_bytes())
    rounded = llm.runtime.capabilities.exact != "bitwise-ties" and bool(result.stats.offered_by_depth)
    return f"{line} · exact up to numerical ties" if rounded else line


def _times(stats: GenerationStats) -> str:
    first = f"first {stats.prefill_s:.2f} s"
    return f"{first}, then {stats.tokens_per_s:.1f} tok/s" if stats.tokens_per_s else first


def _speculation(stats: GenerationStats) -> str:
    if not stats.offered_by_depth:
        return "plain"
    shares = [f"{100 * share:.0f}" for share in depth_shares(stats)]
    more = "/…" if len(shares) > SHOWN_DEPTHS else ""
    return f"tau {stats.tau:.2f} tok/step · depth {'/'.join(shares[:SHOWN_DEPTHS])}{more}%"


def _ending(result: GenerationResult) -> str:
    notes = []
    if not result.lossless:
        notes.append(f"lossy: {result.acceptance} acceptance")
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
