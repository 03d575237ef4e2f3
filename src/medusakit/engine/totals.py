"""Counters of a scheduler: what its steps brought and cost, and how its jobs ended."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from medusakit.engine.jobs import Totals
from medusakit.engine.session import Session
from medusakit.engine.step import Outcome


class Counters:
    """Owned by the inference thread; `totals` copies."""

    def __init__(self) -> None:
        self._steps: Counter[str] = Counter({"tree": 0, "plain": 0})
        self._finished: Counter[str] = Counter()
        self._drafter_failures: Counter[str] = Counter()
        self._accepted_by_depth: list[int] = []
        self._offered_by_depth: list[int] = []
        self._drafts = self._draft_tokens = self._row_steps = self._row_tokens = 0
        self._prompt_tokens = self._cached_tokens = self._generated_tokens = 0
        self._draft_s = self._forward_s = self._other_s = self._prefill_s = 0.0

    def stepped(self, outcome: Outcome) -> None:
        self._steps["tree" if outcome.width > 1 else "plain"] += 1
        self._row_steps += outcome.num_rows
        self._row_tokens += outcome.tokens
        self._draft_tokens += outcome.nodes - outcome.num_rows
        self._draft_s += outcome.draft_s
        self._forward_s += outcome.forward_s
        self._other_s += outcome.other_s
        for offered, accepted in outcome.depths:
            self._drafts += offered > 0
            _add_depths(self._offered_by_depth, offered)
            _add_depths(self._accepted_by_depth, accepted)

    def began(self, session: Session) -> None:
        """A prompt is in its row and the first token is decided."""
        self._prompt_tokens += session.num_prompt
        self._cached_tokens += session.stats.num_reused_tokens
        self._prefill_s += session.stats.prefill_s

    def emitted(self, num_tokens: int) -> None:
        self._generated_tokens += num_tokens

    def ended(self, how: str) -> None:
        self._finished[how] += 1

    def drafter_failed(self, name: str) -> None:
        self._drafter_failures[name] += 1

    def totals(self) -> Totals:
        return Totals(
            steps=dict(self._steps),
            drafts=self._drafts,
            draft_tokens=self._draft_tokens,
            draft_depths=sum(self._offered_by_depth),
            accepted=sum(self._accepted_by_depth),
            accepted_by_depth=_padded(self._accepted_by_depth, len(self._offered_by_depth)),
            offered_by_depth=tuple(self._offered_by_depth),
            row_steps=self._row_steps,
            row_tokens=self._row_tokens,
            prompt_tokens=self._prompt_tokens,
            cached_tokens=self._cached_tokens,
            generated_tokens=self._generated_tokens,
            draft_s=self._draft_s,
            forward_s=self._forward_s,
            other_s=self._other_s,
            prefill_s=self._prefill_s,
            finished=dict(self._finished),
            drafter_failures=dict(self._drafter_failures),
        )


def _add_depths(counts: list[int], depth: int) -> None:
    counts.extend([0] * (depth - len(counts)))
    for index in range(depth):
        counts[index] += 1


def _padded(counts: Sequence[int], length: int) -> tuple[int, ...]:
    return (*counts, *[0] * (length - len(counts)))
