"""What a generation tells the world: one event per emitted token, with provenance, and a result at the end."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal

FinishReason = Literal["stop", "length", "cancelled"]


@dataclass(frozen=True, slots=True)
class TokenEvent:
    """One emitted token. Colours, metrics and tests read this.

    from_draft  True: a drafted token that the model accepted; False: the model's own pick (bonus)
    depth       depth in its tree (accepted tokens), 0 for a bonus token
    node        node index in its tree, -1 for a bonus token
    step        verify pass that emitted it; 0 is the token that prefill decided
    top         (token id, log p) of the best tokens at this place, where the request asked for them
    text        text that became certain with this token (may be empty while a character or a stop prefix is incomplete)
    """

    token_id: int
    text: str
    from_draft: bool
    depth: int
    node: int
    step: int
    logprob: float
    top: tuple[tuple[int, float], ...] = ()

    def with_text(self, text: str) -> TokenEvent:
        return replace(self, text=text)


@dataclass(frozen=True, slots=True)
class TokenScore:
    """What the model says about a token of the prompt: its log p there, and (token id, log p) of the best ones."""

    logprob: float
    top: tuple[tuple[int, float], ...]


@dataclass(slots=True)
class GenerationStats:
    """Counts and times of one generation. tau = tokens after the first / steps."""

    num_prompt_tokens: int = 0
    num_reused_tokens: int = 0
    num_tokens: int = 0
    num_steps: int = 0
    num_nodes: int = 0
    accepted_by_depth: list[int] = field(default_factory=list)
    offered_by_depth: list[int] = field(default_factory=list)
    prefill_s: float = 0.0
    forward_s: float = 0.0
    draft_s: float = 0.0
    other_s: float = 0.0

    @property
    def decode_s(self) -> float:
        return self.forward_s + self.draft_s + self.other_s

    @property
    def tau(self) -> float:
        """Mean tokens per step, bonus included, the prefill's token excluded; 1.0 for plain decoding."""
        return (self.num_tokens - 1) / self.num_steps if self.num_steps else 1.0

    @property
    def nodes_per_step(self) -> float:
        return self.num_nodes / self.num_steps if self.num_steps else 1.0

    @property
    def tokens_per_s(self) -> float:
        """Decoded tokens (the prefill's excluded) per second of decoding."""
        return (self.num_tokens - 1) / self.decode_s if self.decode_s > 0 else 0.0


@dataclass(frozen=True, slots=True)
class GenerationResult:
    """acceptance: the rule's name: greedy, sample; lossy: typical, dynamic."""

    text: str
    token_ids: tuple[int, ...]
    finish_reason: FinishReason
    seed: int | None
    lossless: bool
    acceptance: str
    stats: GenerationStats
    events: tuple[TokenEvent, ...] = field(default=(), repr=False)
    prompt_scores: tuple[TokenScore, ...] = field(default=(), repr=False)
