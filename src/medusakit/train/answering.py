"""The batch in progress: rows of a runtime that answer conversations, each taking the next as soon as it is done.

A row keeps its KV between prompts and forgets only what differs, so a conversation's next turn costs its new tokens,
and a common system prompt costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from medusakit.runtimes.base import Runtime, Scores
from medusakit.settings import SamplingParams
from medusakit.text.chat import conversation_ids
from medusakit.text.tokenizer import Tokenizer
from medusakit.train.shards import Sample, group_of
from medusakit.train.templates import Conversation
from medusakit.tree.topology import Tree
from medusakit.verify.base import Acceptance
from medusakit.verify.history import common_prefix
from medusakit.verify.rules import make_rule

if TYPE_CHECKING:
    from medusakit.train.distill import DistillConfig


@dataclass(slots=True)
class Answer:
    """One turn being answered, after the answers `said` to the turns before it.

    `gen` ends with the token that is not yet in the KV; row j of `hidden` chose gen[j].
    """

    conversation: Conversation
    said: tuple[Sequence[int], ...]
    prompt: list[int]
    group: int
    rule: Acceptance
    gen: list[int] = field(default_factory=list)
    hidden: list[NDArray[np.float16]] = field(default_factory=list)

    @property
    def turn(self) -> int:
        return len(self.said)

    def take(self, scores: Scores) -> None:
        """Decide the next token from one position's scores and keep that position's hidden state."""
        with np.errstate(over="ignore"):  # the writer refuses what float16 cannot hold
            self.hidden.append(scores.hidden(0).astype(np.float16))
        self.gen.append(self.rule.decide(scores, 0, (), self.prompt + self.gen).pick)

    def sample(self) -> Sample:
        ids = np.array(self.prompt + self.gen, dtype=np.int32)
        return Sample(ids, len(self.prompt), np.stack(self.hidden), self.group, self.turn)


@dataclass(slots=True)
class _Slot:
    """A row of the runtime, the ids in its KV (the last of a prompt onwards), and what it is answering."""

    row: int
    context: list[int] = field(default_factory=list)
    answer: Answer | None = None


class AnswerBatch:
    """Rows at work. `skipped` counts turns whose prompt leaves too little room for an answer."""

    def __init__(self, runtime: Runtime, tokenizer: Tokenizer, config: DistillConfig) -> None:
        self._runtime = runtime
        self._tokenizer = tokenizer
        self._config = config
        num_rows = min(config.rows, runtime.capabilities.max_rows)
        self._slots = [_Slot(runtime.add_row()) for _ in range(num_rows)]
        self.skipped = 0

    @property
    def in_progress(self) -> list[Answer]:
        return [slot.answer for slot in self._slots if slot.answer is not None]

    def close(self) -> None:
        """Give the rows back, the last first: so none moves into the place of another."""
        for slot in reversed(self._slots):
            self._runtime.drop_row(slot.row)
        self._slots = []

    def run(self, seeds: Iterator[Conversation], wanted: Callable[[Conversation, int], bool]) -> Iterator[list[Sample]]:
        """The answers as they end, until all rows are idle and `seeds` is used up.

        Also yields, mostly nothing, wherever the work can be left: after every step, every prompt that is prefilled,
        and every conversation that is passed over.
        wanted  (conversation, group) -> whether it is to be answered at all
        """
        openings = (self._opening(seed, wanted) for seed in seeds)
        while True:
            yield from self._fill(openings)
            busy = [slot for slot in self._slots if slot.answer is not None]
            if not busy:
                return
            self._step(busy)
            yield from self._collect(busy)

    def _opening(self, seed: Conversation, wanted: Callable[[Conversation, int], bool]) -> Answer | None:
        answer = self._turn(seed, (), None)
        return answer if answer is not None and wanted(seed, answer.group) else None

    def _turn(self, seed: Conversation, said: tuple[Sequence[int], ...], group: int | None) -> Answer | None:
        prompt = conversation_ids(self._tokenizer, seed.turns[: len(said) + 1], said)
        max_context = self._runtime.capabilities.max_context
        if len(prompt) > min(self._config.max_prompt_tokens, max_context - self._config.max_new_tokens):
            self.skipped += 1
            return None
        group = group_of(prompt) if group is None else group
        return Answer(seed, said, prompt, group, self._rule(group, len(prompt)))

    def _rule(self, group: int, num_prompt_tokens: int) -> Acceptance:
        """Greedy or sampled, decided by the prompt, so that a restart decides alike."""
        rng = np.random.default_rng((self._config.seed, group))
        sampled = rng.random() < self._config.sampled_share
        params = SamplingParams(temperature=self._config.temperature if sampled else 0.0)
        vocab_size = self._runtime.spec.vocab_size
        return make_rule(
            params, seed=int(rng.integers(1 << 62)), vocab_size=vocab_size, num_prompt_tokens=num_prompt_tokens
        )

    def _fill(self, openings: Iterator[Answer | None]) -> Iterator[list[Sample]]:
        """Give every idle row a prompt while there are any. Yields answers that ended with their first token."""
        for slot in self._slots:
            while slot.answer is None:
                try:
                    answer = next(openings)
                except StopIteration:
                    return
                if answer is not None:
                    self._begin(slot, answer)
                yield from self._collect([slot])

    def _begin(self, slot: _Slot, answer: Answer) -> None:
        shared = common_prefix(slot.context, answer.prompt[:-1])
        self._runtime.truncate(slot.row, shared)
        slot.context, slot.answer = list(answer.prompt), answer
        answer.take(self._runtime.prefill(slot.row, answer.prompt[shared:]))

    def _step(self, busy: Sequence[_Slot]) -> None:
        """One token for every busy row."""
        answers = [slot.answer for slot in busy if slot.answer is not None]
        trees = [(slot.row, Tree.plain(answer.gen[-1])) for slot, answer in zip(busy, answers, strict=True)]
        for slot, answer, scores in zip(busy, answers, self._runtime.forward(trees), strict=True):
            slot.context.append(answer.gen[-1])
            answer.take(scores)
        for slot in busy:
            self._runtime.commit(slot.row, [0])

    def _collect(self, busy: Sequence[_Slot]) -> Iterator[list[Sample]]:
        """Answers that have ended, each alone, then an empty list. Their rows go on with the conversation's next turn,
        or become idle."""
        for slot in busy:
            while slot.answer is not None and self._has_ended(slot.answer):
                ended = slot.answer
                following, slot.answer = self._next_turn(ended), None
                if following is not None:
                    self._begin(slot, following)
                yield [ended.sample()]
        yield []

    def _has_ended(self, answer: Answer) -> bool:
        return answer.gen[-1] in self._tokenizer.eos_ids or len(answer.gen) >= self._config.max_new_tokens

    def _next_turn(self, answer: Answer) -> Answer | None:
        if answer.turn + 1 >= len(answer.conversation.turns):
            return None
        return self._turn(answer.conversation, (*answer.said, answer.gen), answer.group)
