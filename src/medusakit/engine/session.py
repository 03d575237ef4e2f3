"""One generation in flight: its ids, its rule, its text, and where it ends. Knows nothing of weights or drafting.

The ids hold prompt and output; the last one is the root, which is decided but not yet in the row's KV.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from medusakit.drafters.base import DraftState
from medusakit.engine.events import FinishReason, GenerationResult, GenerationStats, TokenEvent, TokenScore
from medusakit.engine.plan import Plan
from medusakit.settings import SamplingParams
from medusakit.text.stream import TextStream
from medusakit.tree.topology import FloatArray, Tree
from medusakit.verify.base import Acceptance, Verdict
from medusakit.verify.walk import Walk


@dataclass(slots=True, eq=False)
class Session:
    """hidden      [d] float32, final-norm hidden state at the last accepted position
    max_length  ids that fit the row
    max_nodes   of a tree of this session, root included; None: what the plan says
    num_prompt  ids of the prompt; those behind them are the output
    fresh_rule  the acceptance rule as the request began with it
    error       what ended it, if it failed
    plan        its own, where the request named a drafter or a tree; None: the controller's
    """

    row: int
    ids: list[int]
    rule: Acceptance
    params: SamplingParams
    seed: int | None
    text: TextStream
    eos_ids: frozenset[int]
    max_length: int
    hidden: FloatArray
    max_nodes: int | None = None
    num_prompt: int = field(init=False)
    fresh_rule: Acceptance = field(init=False)
    stats: GenerationStats = field(default_factory=GenerationStats)
    finish_reason: FinishReason | None = None
    events: list[TokenEvent] = field(default_factory=list)
    error: Exception | None = None
    prompt_scores: Sequence[TokenScore] = ()
    plan: Plan | None = None

    def __post_init__(self) -> None:
        self.num_prompt = len(self.ids)
        self.fresh_rule = self.rule
        self.stats.num_prompt_tokens = self.num_prompt

    @property
    def running(self) -> bool:
        return self.finish_reason is None

    @property
    def output_ids(self) -> Sequence[int]:
        return self.ids[self.num_prompt :]

    def draft_state(self) -> DraftState:
        return DraftState(self.row, self.ids[-1], self.hidden, self.ids)

    def room(self, budget: int) -> int:
        """The budget, cut so that no drafted node lies past the row's capacity or the request's last token."""
        budget = budget if self.max_nodes is None else min(budget, self.max_nodes)
        room = self.max_length - len(self.ids) + 1
        last = self.stats.num_tokens + 1 >= self.params.max_tokens
        return 1 if last else max(1, min(budget, room))

    def emit_first(self, verdict: Verdict) -> None:
        """The token that prefill decided: the first root."""
        self._emit(verdict.pick, TokenEvent(verdict.pick, "", False, 0, -1, 0, verdict.logprob, verdict.top))

    def emit(self, tree: Tree, path: Walk) -> int:
        """Emit accepted tokens and bonus up to the first end. Returns the number of emitted tokens."""
        self.stats.num_steps += 1
        self.stats.num_nodes += tree.num_nodes
        self._count(tree.topology.max_depth, path.num_accepted)
        self.rule = self.rule.after(tree.topology.max_depth, path.num_accepted)
        nodes = (*path.nodes[1:], -1)
        for index, (token_id, node) in enumerate(zip(path.token_ids, nodes, strict=True)):
            drafted = node >= 0
            depth = index + 1 if drafted else 0
            top = path.tops[index] if path.tops else ()
            event = TokenEvent(token_id, "", drafted, depth, node, self.stats.num_steps, path.logprobs[index], top)
            self._emit(token_id, event)
            if not self.running:
                return index + 1
        return len(path.token_ids)

    def cancel(self) -> None:
        """End here; what was emitted stays."""
        if self.running:
            self._finish("cancelled")

    def reset_rule(self) -> None:
        """Drop what the acceptance rule has learnt from the steps so far."""
        self.rule = self.fresh_rule

    def fail(self, error: Exception) -> None:
        """End here because of an error; what was emitted stays, what the row's KV holds is uncertain."""
        self.error, self.finish_reason = error, "cancelled"

    def result(self) -> GenerationResult:
        return GenerationResult(
            text="".join(event.text for event in self.events),
            token_ids=tuple(self.output_ids),
            finish_reason=self.finish_reason or "cancelled",
            seed=self.seed,
            lossless=self.rule.lossless,
            acceptance=self.rule.name,
            stats=self.stats,
            events=tuple(self.events),
            prompt_scores=tuple(self.prompt_scores),
        )

    def _emit(self, token_id: int, event: TokenEvent) -> None:
        self.ids.append(token_id)
        self.stats.num_tokens += 1
        if token_id in self.eos_ids:
            self.events.append(event)
            self._finish("stop")
            return
        piece = self.text.push(token_id)
        self.events.append(event.with_text(piece.text))
        if piece.stopped:
            self.finish_reason = "stop"
        elif self.stats.num_tokens >= self.params.max_tokens or len(self.ids) >= self.max_length:
            self._finish("length")

    def _finish(self, reason: FinishReason) -> None:
        """Text that was held back (an incomplete character, a possible stop prefix) belongs to the last token."""
        self.finish_reason = reason
        rest = self.text.flush()
        if rest and self.events:
            self.events[-1] = self.events[-1].with_text(self.events[-1].text + rest)

    def _count(self, offered: int, accepted: int) -> None:
        stats = self.stats
        while len(stats.offered_by_depth) < offered:
            stats.offered_by_depth.append(0)
            stats.accepted_by_depth.append(0)
        for depth in range(offered):
            stats.offered_by_depth[depth] += 1
        for depth in range(accepted):
            stats.accepted_by_depth[depth] += 1
