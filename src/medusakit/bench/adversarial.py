"""The suite `adversarial`: requests where drafts are wrong, to see that speculation does not slow decoding down.

random-ids        a prompt of uniformly random token ids: nothing that a drafter has ever seen
high-temperature  ordinary questions at a temperature so high that the next token is close to chance
random-heads      ordinary questions, drafted by heads whose weights are in random order (where the model has heads)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import cycle

import numpy as np

from medusakit.bench.answers import ControllerMode, EngineMode, Mode
from medusakit.bench.candidates import speculating
from medusakit.bench.degraded import shuffled
from medusakit.bench.summary import Turn
from medusakit.bench.turns import Asked, rotated, warm_up
from medusakit.bench.workloads import Question, load_suite, spread
from medusakit.engine.wishes import Wishes
from medusakit.llm import LLM
from medusakit.settings import SamplingParams
from medusakit.text.chat import chat_ids

SUITE = "adversarial"
CASES = 8  # of each category
LENGTHS = (16, 64, 128, 256)  # of random prompts, in tokens
HOT = 1.5  # temperature


@dataclass(frozen=True, slots=True)
class Case:
    """One request. mode: what answers it in the place of `medusa`; None: medusa itself."""

    id: str
    category: str
    ids: list[int]
    params: SamplingParams
    mode: Mode | None = None


def make_cases(
    llm: LLM,
    params: SamplingParams,
    *,
    limit: int | None = None,
    threads: int | None = None,
    wishes: Wishes = Wishes(),  # noqa: B008  frozen
    seed: int = 0,
) -> list[Case]:
    """Cases that fit the context; answers go on to `params.max_tokens`, because many would end at once.

    limit   as many cases, spread over the categories
    wishes  what the model was loaded with: the random heads take the place of the real ones
    """
    params = replace(params, ignore_eos=True)
    cases = [*_random_ids(llm, params, seed), *_hot(llm, params), *_random_heads(llm, params, wishes, threads, seed)]
    limit = len(cases) if limit is None else limit
    kept = {question.id for question in spread([Question(case.id, case.category, ("",)) for case in cases], limit)}
    return [case for case in cases if case.id in kept]


def answered_cases(llm: LLM, modes: Sequence[Mode], cases: Sequence[Case]) -> Iterator[Asked]:
    """Every case, answered by all modes."""
    own = {case.mode.name: case.mode for case in cases if case.mode is not None}
    warm_up(llm, [*modes, *own.values()])
    for count, case in enumerate(cases):
        instead = case.mode
        answering = [instead if instead is not None and mode.name == instead.name else mode for mode in modes]
        answers = rotated(answering, count, case.ids, case.params)
        yield Asked(Turn(case.id, case.category, 0, answers), case.ids, case.params)


def _random_ids(llm: LLM, params: SamplingParams, seed: int) -> Iterator[Case]:
    random = np.random.default_rng(seed)
    words = sorted(set(range(llm.tokenizer.vocab_size)) - llm.tokenizer.special_ids)
    for number, length in zip(range(CASES), cycle(LENGTHS), strict=False):
        ids = random.choice(words, length).tolist()
        if fits(llm, ids):
            yield Case(f"random-ids {number + 1}", "random-ids", ids, params)


def _hot(llm: LLM, params: SamplingParams) -> Iterator[Case]:
    for number, ids in enumerate(_questions(llm)):
        hot = replace(params, temperature=HOT, seed=(params.seed or 0) + number)
        yield Case(f"high-temperature {number + 1}", "high-temperature", ids, hot)


def _random_heads(llm: LLM, params: SamplingParams, wishes: Wishes, threads: int | None, seed: int) -> Iterator[Case]:
    """Beside them drafts whatever drafts beside the real ones; their calibrated tree is the real ones'."""
    artifact = llm.parts.artifact
    if artifact is None:
        return
    controller = speculating(llm.parts, wishes, shuffled(artifact, seed=seed), threads).controller
    mode = ControllerMode(EngineMode(llm, speculation=True).name, llm, controller)
    for number, ids in enumerate(_questions(llm)):
        yield Case(f"random-heads {number + 1}", "random-heads", ids, params, mode)


def _questions(llm: LLM) -> Iterator[list[int]]:
    for question in load_suite("mt-bench", limit=CASES):
        ids = chat_ids(llm.tokenizer, [{"role": "user", "content": question.turns[0]}])
        if fits(llm, ids):
            yield ids


def fits(llm: LLM, ids: Sequence[int]) -> bool:
    """Prompt and at least one token of the answer."""
    return len(ids) < llm.runtime.capabilities.max_context
