"""What one request may ask for. Defaults are the exact, greedy ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """Request parameters. Temperature 0 is greedy; every processor is applied along the path that is walked.

    acceptance  "exact" (greedy at temperature 0, sample above) or "typical" (lossy)
    eps, delta  of typical acceptance (Medusa, section 2.3.1): p > min(eps, delta * exp(-H))
    """

    max_tokens: int = 512
    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    seed: int | None = None
    stop: tuple[str, ...] = ()
    ignore_eos: bool = False
    acceptance: str = "exact"
    eps: float = 0.09
    delta: float = 0.3
