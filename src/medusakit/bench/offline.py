"""`medusa bench offline`: modes interleaved question by question in one process, with intervals over questions.

Protocol: the model's own chat template, no added system prompt; the second turn continues *plain's* first answer in
every mode; end of sequence counts as a token; which mode goes first rotates.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from medusakit.bench.answers import Answer, EngineMode, Mode, TransformersMode
from medusakit.bench.circumstances import circumstances
from medusakit.bench.equality import Difference, equality_summary, judge_difference
from medusakit.bench.summary import Turn, mode_summary, speedups
from medusakit.bench.workloads import Question, load_suite
from medusakit.errors import UsageError
from medusakit.llm import LLM
from medusakit.settings import SamplingParams
from medusakit.text.chat import chat_ids

MODES = ("plain", "medusa", "hf")


@dataclass(frozen=True, slots=True)
class OfflineConfig:
    """suite: a name or a JSONL file. limit: questions, spread evenly over categories; None: all."""

    suite: str = "mt-bench"
    limit: int | None = None
    modes: tuple[str, ...] = ("plain", "medusa")
    params: SamplingParams = field(default_factory=lambda: SamplingParams(max_tokens=256, seed=0))
    threads: int | None = None
    seed: int = 0


@dataclass(frozen=True, slots=True)
class OfflineProgress:
    """done of total turns, and the running speed of every mode (tokens per second)."""

    done: int
    total: int
    tokens_per_s: dict[str, float]


def run_offline(
    llm: LLM, config: OfflineConfig, on_progress: Callable[[OfflineProgress], None] | None = None
) -> dict[str, Any]:
    """Run the suite and return the JSON document of `--json`.

    Raises UsageError for modes that cannot be run, and where no question fits the context.
    """
    modes = make_modes(llm, config)
    questions = load_suite(config.suite, limit=config.limit)
    total = sum(len(question.turns) for question in questions)
    turns: list[Turn] = []
    differences: dict[str, list[Difference | None]] = {f"{mode.name}==plain": [] for mode in modes[1:]}
    for turn, ids in answered_turns(llm, modes, questions, config.params):
        turns.append(turn)
        plain = turn.answers["plain"]
        for mode in modes[1:]:
            other = turn.answers[mode.name]
            where = f"{turn.group} turn {turn.turn + 1}"
            differences[f"{mode.name}==plain"].append(
                judge_difference(llm, where, ids, plain.token_ids, other.token_ids, config.params)
            )
        if on_progress is not None:
            on_progress(OfflineProgress(len(turns), total, _speeds(turns)))
    if not turns:
        limit = llm.runtime.capabilities.max_context
        raise UsageError(f"no question fits the context of {limit} tokens", hint="a larger --max-context")
    return document(llm, config, turns, differences)


def make_modes(llm: LLM, config: OfflineConfig) -> list[Mode]:
    """The modes, plain first: it is the baseline and writes the first answers. Raises UsageError."""
    if not config.modes:
        raise UsageError("no mode to run", hint=f"--modes {','.join(MODES)}")
    if unknown := set(config.modes) - set(MODES):
        raise UsageError(f"unknown mode {sorted(unknown)[0]}", hint=f"--modes {','.join(MODES)}")
    if "medusa" in config.modes and llm.parts.drafter is None:
        raise UsageError("mode medusa needs heads, and none fit this model", hint="medusa train all -m MODEL --out DIR")
    if "hf" in config.modes and config.params.temperature > 0:
        raise UsageError("mode hf is greedy, so it cannot be compared at a temperature", hint="--temperature 0")
    modes: list[Mode] = [EngineMode(llm, speculation=False)]
    if "medusa" in config.modes:
        modes.append(EngineMode(llm, speculation=True))
    if "hf" in config.modes:
        modes.append(TransformersMode(llm, config.threads))
    return modes


def answered_turns(
    llm: LLM, modes: Sequence[Mode], questions: Sequence[Question], params: SamplingParams
) -> Iterator[tuple[Turn, list[int]]]:
    """Every turn that fits the context, answered by all modes, with its prompt ids."""
    warm_up(llm, modes)
    limit = llm.runtime.capabilities.max_context
    count = 0
    for question in questions:
        messages: list[dict[str, str]] = []
        for number, text in enumerate(question.turns):
            messages.append({"role": "user", "content": text})
            ids = chat_ids(llm.tokenizer, messages)
            if len(ids) >= limit:
                break
            answers: dict[str, Answer] = {}
            start = count % len(modes)
            for mode in (*modes[start:], *modes[:start]):
                answers[mode.name] = mode.answer(ids, params)
            count += 1
            messages.append({"role": "assistant", "content": answers["plain"].text})
            yield Turn(question.id, question.category, number, answers), ids


def warm_up(llm: LLM, modes: Sequence[Mode]) -> None:
    """A short answer in every mode, unmeasured: first passes allocate memory."""
    ids = chat_ids(llm.tokenizer, [{"role": "user", "content": "Count to ten."}])
    for mode in modes:
        mode.answer(ids, SamplingParams(max_tokens=8, ignore_eos=True))


def document(
    llm: LLM, config: OfflineConfig, turns: Sequence[Turn], differences: dict[str, list[Difference | None]]
) -> dict[str, Any]:
    """The report's document: the issue's keys and the circumstances."""
    names = [mode for mode in MODES if mode in turns[0].answers]
    return {
        "modes": {name: mode_summary([turn.answers[name] for turn in turns]) for name in names},
        "by_category": _by_category(turns, names),
        "speedup": speedups(turns, names, seed=config.seed),
        "identical": {pair: equality_summary(found) for pair, found in differences.items()},
        "lossless": config.params.acceptance == "exact",
        "weights": llm.runtime.capabilities.weights,
        "seed": config.seed,
        **circumstances(llm, {"suite": config.suite, "limit": config.limit, "modes": names}, config.params),
    }


def _by_category(turns: Sequence[Turn], names: Sequence[str]) -> dict[str, Any]:
    keys = ("tokens_per_s", "tau", "looping_share")
    found: dict[str, Any] = {}
    for category in sorted({turn.category for turn in turns}):
        of = [turn for turn in turns if turn.category == category]
        summaries = {name: mode_summary([turn.answers[name] for turn in of]) for name in names}
        found[category] = {name: {key: summary[key] for key in keys} for name, summary in summaries.items()}
    return found


def _speeds(turns: Sequence[Turn]) -> dict[str, float]:
    return {name: mode_summary([turn.answers[name] for turn in turns])["tokens_per_s"] for name in turns[0].answers}
