"""Answers in a given form: a grammar masks the scores of every node along the path that is walked.

The mask comes before the request's own rule, so plain and speculative decoding still give one sequence. It is computed
only for nodes that are visited, and there only if something but an allowed argmax is asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from medusakit.errors import FormError
from medusakit.runtimes.base import Scores
from medusakit.tree.topology import Draft, FloatArray, IntArray
from medusakit.verify.base import Acceptance, Verdict
from medusakit.verify.grammar import Grammar
from medusakit.verify.guide import Guiding
from medusakit.verify.history import PathHistory, common_prefix


class GrammarRule:
    """Another exact rule, which sees only what the grammar allows. Keeps the state of one sequence."""

    path_weight = 0.0

    def __init__(self, rule: Acceptance, grammar: Grammar, num_prompt_tokens: int) -> None:
        self._rule, self._place = rule, Place(grammar, num_prompt_tokens)

    @property
    def name(self) -> str:
        return self._rule.name

    @property
    def lossless(self) -> bool:
        return self._rule.lossless

    def after(self, offered: int, accepted: int) -> GrammarRule:
        return self

    def guided(self, draft: Draft, history: Sequence[int]) -> Draft:
        """The draft without what the grammar forbids, and with what it forces. history: up to the root."""
        return self._place.guided(draft, history)

    def decide(self, scores: Scores, node: int, children: Sequence[tuple[int, int]], history: Sequence[int]) -> Verdict:
        if (end := self._place.end_of(history)) is not None:
            return Verdict((), end)  # of a drafted end: nothing after it is emitted
        self._place.follow(history)
        return self._rule.decide(MaskedScores(scores, self._place), node, children, history)


class Place:
    """Where one answer stands in its grammar."""

    def __init__(self, grammar: Grammar, num_prompt_tokens: int) -> None:
        self._vocabulary, self._matcher = grammar.vocabulary, grammar.matcher()
        self._num_prompt = num_prompt_tokens
        self._taken: list[int] = []
        self._certain = 0  # of these, emitted: they never change
        self._allowed: IntArray | None = None  # of this place, once somebody asked

    def end_of(self, history: Sequence[int]) -> int | None:
        """The last token, if it ended the answer."""
        ended = len(history) > self._num_prompt and history[-1] in self._vocabulary.ends
        return history[-1] if ended else None

    def permits(self, token: int) -> bool:
        """Whether the grammar lets this token follow; much cheaper than all of them."""
        if self._allowed is not None or token in self._vocabulary.control or self._matcher.is_stopped():
            return bool(np.any(self.allowed() == token))
        return bool(self._matcher.validate_tokens([token]))

    def allowed(self) -> IntArray:
        """Token ids, ascending. Where the document is whole and cannot go on, the matcher has stopped: the answer
        ends. Raises FormError where the grammar became too much for llguidance."""
        if self._allowed is None:
            self._allowed = self._computed()
        return self._allowed

    def guided(self, draft: Draft, history: Sequence[int]) -> Draft:
        """See `GrammarRule.guided`."""
        if self.end_of(history) is not None:
            return draft
        self.follow(history)
        if self._matcher.is_error():
            return draft  # the root's verdict will say so
        return Guiding(draft, self._matcher, self._vocabulary).draft()

    def follow(self, history: Sequence[int]) -> None:
        """Bring the grammar to the state after `history`, taking back what another path had brought it to."""
        base = history.base if isinstance(history, PathHistory) else history
        fresh = history[self._num_prompt + self._certain :]
        same = common_prefix(self._taken[self._certain :], fresh)
        surplus = len(self._taken) - self._certain - same
        if surplus:
            self._matcher.rollback(surplus)
            del self._taken[-surplus:]
        if fresh[same:]:
            self._matcher.consume_tokens(list(fresh[same:]))
            self._taken += fresh[same:]
        if surplus or fresh[same:]:
            self._allowed = None
        self._certain = min(len(self._taken), max(0, len(base) - self._num_prompt))

    def _computed(self) -> IntArray:
        matcher: Any = self._matcher
        if matcher.is_stopped() and not matcher.is_error():
            return np.array(self._vocabulary.ends, dtype=np.int64)
        bits = np.unpackbits(np.frombuffer(matcher.compute_bitmask(), dtype=np.uint8), bitorder="little")
        if matcher.is_error() or not bits.any():
            reason = matcher.get_error().partition("\n")[0][:300]
            raise FormError(f"the JSON schema became too much work in this answer: {reason}", hint="a simpler schema")
        return np.flatnonzero(bits)


@dataclass(frozen=True, slots=True)
class MaskedScores:
    """Scores in which tokens that the grammar forbids at `place` have minus infinity; good until the place moves."""

    scores: Scores
    place: Place

    @property
    def num_nodes(self) -> int:
        return self.scores.num_nodes

    def argmax(self, node: int) -> int:
        """If the best token is allowed it is also the best of those, and neither mask nor logits are needed."""
        best = self.scores.argmax(node)
        return best if self.place.permits(best) else int(self.logits(node).argmax())

    def logits(self, node: int) -> FloatArray:
        logits, allowed = self.scores.logits(node), self.place.allowed()
        masked = np.full(len(logits), -np.inf, dtype=np.float32)
        masked[allowed] = logits[allowed]
        return masked

    def hidden(self, node: int) -> FloatArray:
        return self.scores.hidden(node)
