"""The engine: sessions join, advance together step by step, and leave. Purely token ids; text is the session's.

Rows are the runtime's; a finished session's row can be kept (`KeptRow`) so that the next turn of a chat prefills only
what is new.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import overload

from medusakit.engine.controller import Controller
from medusakit.engine.events import TokenEvent, TokenScore
from medusakit.engine.plan import Plan
from medusakit.engine.prompt import short
from medusakit.engine.scoring import score_prompt
from medusakit.engine.session import Session
from medusakit.engine.step import Outcome, step
from medusakit.errors import ContextLengthError, UsageError
from medusakit.runtimes.base import RowMemory, Runtime, Scores
from medusakit.settings import SamplingParams
from medusakit.text.stream import TextStream
from medusakit.text.tokenizer import Tokenizer
from medusakit.verify.history import common_prefix
from medusakit.verify.rules import make_rule


@dataclass(frozen=True, slots=True)
class KeptRow:
    """A row whose KV holds `ids`, left by a finished session for the next one to extend."""

    row: int
    ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class SavedPrefix:
    """The first `length` positions of `memory` are those of the ids that a prompt begins with."""

    memory: RowMemory
    length: int


@dataclass(slots=True, eq=False)
class Prefill:
    """A prompt on its way into its row. position: ids in the KV so far; num_reused: of those, not run for this one.
    max_nodes, plan: of the session's trees, as there.
    """

    row: int
    ids: list[int]
    params: SamplingParams
    max_nodes: int | None
    seed: int
    num_reused: int
    position: int
    seconds: float = 0.0
    scores: list[TokenScore] = field(default_factory=list)
    plan: Plan | None = None

    @property
    def num_left(self) -> int:
        return len(self.ids) - self.position


class Engine:
    """Owns no policy: the controller says what each step does, the runtime does it."""

    def __init__(
        self,
        runtime: Runtime,
        tokenizer: Tokenizer,
        controller: Controller,
        *,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.runtime = runtime
        self.tokenizer = tokenizer
        self.controller = controller
        self._clock = clock
        self._active: list[Session] = []

    @property
    def active(self) -> tuple[Session, ...]:
        return tuple(self._active)

    def start(
        self, ids: Sequence[int], params: SamplingParams, kept: KeptRow | None = None, *, plan: Plan | None = None
    ) -> Session:
        """Prefill `ids` and emit the first token. Raises UsageError on an empty prompt, ContextLengthError if it cannot
        fit. With `kept`, the part of its KV that is a prefix of `ids` is reused; the row then belongs to this session
        (and is given back if the start fails).
        """
        return self.advance(self.begin(ids, params, kept=kept, plan=plan))

    def begin(
        self,
        ids: Sequence[int],
        params: SamplingParams,
        *,
        kept: KeptRow | None = None,
        saved: SavedPrefix | None = None,
        max_nodes: int | None = None,
        plan: Plan | None = None,
    ) -> Prefill:
        """Take a row for `ids`, with what `kept` or `saved` holds of their beginning in it. Errors as in `start`."""
        ids = list(ids)
        row = self.runtime.add_row() if kept is None else kept.row
        try:
            self.check(ids, params)
            reused = 0
            if kept is not None:
                reused = common_prefix(kept.ids, ids[:-1])
                self.runtime.truncate(row, reused)
            elif saved is not None:
                reused = min(saved.length, len(ids) - 1)
                self.runtime.restore(row, saved.memory, reused)
        except BaseException:
            self.runtime.drop_row(row)
            raise
        seed = secrets.randbits(63) if params.seed is None else params.seed
        return Prefill(row, ids, params, max_nodes, seed, reused, reused, plan=plan)

    @overload
    def advance(self, prefill: Prefill) -> Session: ...

    @overload
    def advance(self, prefill: Prefill, max_tokens: int) -> Session | None: ...

    def advance(self, prefill: Prefill, max_tokens: int | None = None) -> Session | None:
        """Run the prompt's next `max_tokens` positions (None: all of them). With the last one, the first token is
        emitted and the session returned; None before that. The row is given back if it fails."""
        started = self._clock()
        end = len(prefill.ids) if max_tokens is None else min(prefill.position + max_tokens, len(prefill.ids))
        try:
            scores = self._run(prefill, end)
            prefill.position = end
            session = None if prefill.num_left else self._first(prefill, scores)
        except BaseException:
            self.abandon(prefill)
            raise
        prefill.seconds += self._clock() - started
        if session is not None:
            session.stats.prefill_s = prefill.seconds
            if session.running:
                self._active.append(session)
        return session

    def abandon(self, prefill: Prefill) -> None:
        """Give the row of a prompt back that will not be finished."""
        self.runtime.drop_row(prefill.row)

    def step(self) -> Outcome | None:
        """One step for every running session, in one pass of the model. None: no session was running."""
        running = [session for session in self._active if session.running]
        outcome = None
        if running:
            plans = self.controller.plans(running)
            outcome = step(running, plans, self.runtime, self._clock, self.controller.failed)
            self.controller.learn(outcome)
        self._active = [session for session in self._active if session.running]
        return outcome

    def reset_verification(self) -> None:
        """Drop what was learnt from steps: the controller's, and the acceptance rules' of the sessions in flight."""
        self.controller.reset()
        for session in self._active:
            session.reset_rule()

    def finish(self, session: Session) -> None:
        """Give the session's row back; cancels it if it is still running."""
        self._leave(session)
        self.controller.forget(session.row)
        self.runtime.drop_row(session.row)

    def keep(self, session: Session) -> KeptRow:
        """End the session but keep its row and KV for a later `start(..., kept=...)`."""
        self._leave(session)
        self.controller.forget(session.row)
        return KeptRow(session.row, tuple(session.ids[: self.runtime.length(session.row)]))

    def release(self, kept: KeptRow) -> None:
        self.runtime.drop_row(kept.row)

    def run(self, session: Session) -> Iterator[TokenEvent]:
        """Events of one session as they come; other active sessions advance with it. Raises what made it fail."""
        seen = 0
        while True:
            while seen < len(session.events):
                yield session.events[seen]
                seen += 1
            if session.error is not None:
                raise session.error
            if not session.running:
                return
            self.step()

    def _run(self, prefill: Prefill, end: int) -> Scores:
        """The prompt up to `end`, scored where the request wants that."""
        ids = prefill.ids[prefill.position : end]
        if not prefill.params.score_prompt:
            return self.runtime.prefill(prefill.row, ids)
        follow = prefill.ids[prefill.position + 1 : end + 1]
        return score_prompt(self.runtime, prefill.row, ids, follow, prefill.params.logprobs or 0, prefill.scores)

    def _first(self, prefill: Prefill, scores: Scores) -> Session:
        params, ids = prefill.params, prefill.ids
        rule = make_rule(
            params,
            seed=prefill.seed,
            vocab_size=self.runtime.spec.vocab_size,
            num_prompt_tokens=len(ids),
        )
        verdict = rule.decide(scores, 0, (), ids)
        session = Session(
            row=prefill.row,
            ids=ids,
            rule=rule,
            params=params,
            seed=prefill.seed if params.temperature > 0 else None,
            text=TextStream(
                self.tokenizer,
                params.stop,
                continues=ids[-1] not in self.tokenizer.special_ids,  # a prompt that ends in text goes on
                shown=params.shown,
            ),
            eos_ids=frozenset() if params.ignore_eos else self.tokenizer.eos_ids,
            max_length=self.runtime.capabilities.max_context,
            hidden=scores.hidden(0).copy(),
            max_nodes=prefill.max_nodes,
            prompt_scores=prefill.scores,
            plan=prefill.plan,
        )
        session.stats.num_reused_tokens = prefill.num_reused
        session.emit_first(verdict)
        return session

    def _leave(self, session: Session) -> None:
        session.cancel()
        self._active = [other for other in self._active if other is not session]

    def check(self, ids: Sequence[int], params: SamplingParams) -> None:
        """Raises UsageError or ContextLengthError for what can never be run; touches nothing, so any thread may ask."""
        if not isinstance(params, SamplingParams):
            raise UsageError(f"params are {short(params)}, expected SamplingParams", hint="SamplingParams(seed=7)")
        if not ids:
            raise UsageError("the prompt is empty", hint='medusa run "Explain a B-tree in two sentences"')
        limit = self.runtime.capabilities.max_context
        if len(ids) >= limit:
            raise ContextLengthError(
                f"the prompt has {len(ids)} tokens; the context holds {limit}, the answer included",
                hint=f"shorten the prompt to at most {limit - 1} tokens",
            )
        vocab_size = self.runtime.spec.vocab_size
        if min(ids) < 0 or max(ids) >= vocab_size:
            bad = next(token for token in ids if not 0 <= token < vocab_size)
            raise UsageError(
                f"token id {bad} is outside the vocabulary of {vocab_size}", hint="the ids that llm.encode(text) gives"
            )
        make_rule(params, seed=0, vocab_size=vocab_size)
