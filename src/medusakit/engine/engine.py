"""The engine: sessions join, advance together step by step, and leave. Purely token ids; text is the session's.

Rows are the runtime's; a finished session's row can be kept (`KeptRow`) so that the next turn of a chat prefills only
what is new.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from medusakit.engine.controller import Controller
from medusakit.engine.events import TokenEvent
from medusakit.engine.session import Session
from medusakit.engine.step import step
from medusakit.errors import ContextLengthError, UsageError
from medusakit.runtimes.base import Runtime
from medusakit.settings import SamplingParams
from medusakit.text.stream import TextStream
from medusakit.text.tokenizer import Tokenizer
from medusakit.verify.rules import make_rule


@dataclass(frozen=True, slots=True)
class KeptRow:
    """A row whose KV holds `ids`, left by a finished session for the next one to extend."""

    row: int
    ids: tuple[int, ...]


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

    def start(self, ids: Sequence[int], params: SamplingParams, kept: KeptRow | None = None) -> Session:
        """Prefill `ids` and emit the first token. Raises UsageError on an empty prompt, ContextLengthError if it cannot
        fit. With `kept`, the part of its KV that is a prefix of `ids` is reused; the row then belongs to this session
        (and is given back if the start fails).
        """
        ids = list(ids)
        limit = self.runtime.capabilities.max_context
        row = self.runtime.add_row() if kept is None else kept.row
        try:
            self._check_prompt(ids, limit)
            session = self._prefill(row, ids, params, kept, limit)
        except BaseException:
            self.runtime.drop_row(row)
            raise
        if session.running:
            self._active.append(session)
        return session

    def step(self) -> None:
        """One step for every running session, in one pass of the model."""
        running = [session for session in self._active if session.running]
        if running:
            self.controller.learn(step(running, self.controller.plan(running), self.runtime, self._clock))
        self._active = [session for session in self._active if session.running]

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
        """Events of one session as they come; other active sessions advance with it."""
        seen = 0
        while True:
            while seen < len(session.events):
                yield session.events[seen]
                seen += 1
            if not session.running:
                return
            self.step()

    def _prefill(self, row: int, ids: list[int], params: SamplingParams, kept: KeptRow | None, limit: int) -> Session:
        started = self._clock()
        seed = secrets.randbits(63) if params.seed is None else params.seed
        rule = make_rule(params, seed=seed, vocab_size=self.runtime.spec.vocab_size, num_prompt_tokens=len(ids))
        reused = 0 if kept is None else common_prefix(kept.ids, ids[:-1])
        if kept is not None:
            self.runtime.truncate(row, reused)
        scores = self.runtime.prefill(row, ids[reused:])
        verdict = rule.decide(scores, 0, (), ids)
        session = Session(
            row=row,
            ids=ids,
            rule=rule,
            params=params,
            seed=seed if params.temperature > 0 else None,
            text=TextStream(self.tokenizer, params.stop),
            eos_ids=frozenset() if params.ignore_eos else self.tokenizer.eos_ids,
            max_length=limit,
            hidden=scores.hidden(0).copy(),
        )
        session.stats.num_reused_tokens = reused
        session.emit_first(verdict)
        session.stats.prefill_s = self._clock() - started
        return session

    def _leave(self, session: Session) -> None:
        session.cancel()
        self._active = [other for other in self._active if other is not session]

    def _check_prompt(self, ids: Sequence[int], limit: int) -> None:
        if not ids:
            raise UsageError("the prompt is empty", hint='medusa run "Explain a B-tree in two sentences"')
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


def common_prefix(left: Sequence[int], right: Sequence[int]) -> int:
    """Length of the longest common prefix.

    >>> common_prefix([1, 2, 3], [1, 2, 4, 5])
    2
    """
    length = 0
    for a, b in zip(left, right, strict=False):
        if a != b:
            break
        length += 1
    return length
