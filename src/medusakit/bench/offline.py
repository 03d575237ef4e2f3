"""`medusa bench offline`: modes interleaved question by question (turns.py), with intervals over questions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from medusakit.bench import adversarial
from medusakit.bench.answers import EngineMode, Mode, TransformersMode
from medusakit.bench.circumstances import circumstances
from medusakit.bench.equality import equality_summary
from medusakit.bench.summary import Turn, mode_summary, predicted, speedups
from medusakit.bench.turns import Asked, Differences, answered_turns, collect, speeds
from medusakit.bench.workloads import load_suite
from medusakit.engine.wishes import Wishes
from medusakit.errors import UsageError
from medusakit.llm import LLM
from medusakit.settings import SamplingParams

MODES = ("plain", "medusa", "hf")


@dataclass(frozen=True, slots=True)
class OfflineConfig:
    """suite: a name (workloads.SUITES, or `adversarial`) or a JSONL file.

    limit: questions, spread evenly over categories; None: all. wishes: what the model was loaded with.
    """

    suite: str = "mt-bench"
    limit: int | None = None
    modes: tuple[str, ...] = ("plain", "medusa")
    params: SamplingParams = field(default_factory=lambda: SamplingParams(max_tokens=256, seed=0))
    threads: int | None = None
    seed: int = 0
    wishes: Wishes = Wishes()


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
    total, asked = _asked(llm, modes, config)

    def on_turns(turns: Sequence[Turn]) -> None:
        if on_progress is not None:
            on_progress(OfflineProgress(len(turns), total, speeds(turns)))

    turns, differences = collect(llm, modes, asked, on_turns)
    return document(llm, config, turns, differences)


def _asked(llm: LLM, modes: Sequence[Mode], config: OfflineConfig) -> tuple[int, Iterator[Asked]]:
    """How many turns there are at most, and the turns as they are answered."""
    if config.suite == adversarial.SUITE:
        cases = adversarial.make_cases(
            llm, config.params, limit=config.limit, threads=config.threads, wishes=config.wishes
        )
        return len(cases), adversarial.answered_cases(llm, modes, cases)
    questions = load_suite(config.suite, limit=config.limit)
    return sum(len(question.turns) for question in questions), answered_turns(llm, modes, questions, config.params)


def make_modes(llm: LLM, config: OfflineConfig) -> list[Mode]:
    """The modes, plain first: it is the baseline and writes the first answers. Raises UsageError."""
    if not config.modes:
        raise UsageError("no mode to run", hint=f"--modes {','.join(MODES)}")
    if unknown := set(config.modes) - set(MODES):
        raise UsageError(f"unknown mode {sorted(unknown)[0]}", hint=f"--modes {','.join(MODES)}")
    if "medusa" in config.modes and llm.parts.speculation.drafter is None:
        raise UsageError("mode medusa needs heads, and none fit this model", hint="medusa train all -m MODEL --out DIR")
    if "hf" in config.modes and config.suite == adversarial.SUITE:
        raise UsageError("the adversarial suite compares medusa with plain", hint="--modes plain,medusa")
    if "hf" in config.modes and config.params.temperature > 0:
        raise UsageError("mode hf is greedy, so it cannot be compared at a temperature", hint="--temperature 0")
    modes: list[Mode] = [EngineMode(llm, speculation=False)]
    if "medusa" in config.modes:
        modes.append(EngineMode(llm, speculation=True))
    if "hf" in config.modes:
        modes.append(TransformersMode(llm, config.threads))
    return modes


def document(llm: LLM, config: OfflineConfig, turns: Sequence[Turn], differences: Differences) -> dict[str, Any]:
    """The report's document: the issue's keys and the circumstances."""
    names = [mode for mode in MODES if mode in turns[0].answers]
    ratios = speedups(turns, names, seed=config.seed)
    if "medusa/plain" in ratios and llm.parts.cost is not None:
        ratios["medusa/plain"]["predicted"] = predicted(turns, llm.parts.cost)
    return {
        "modes": {name: mode_summary([turn.answers[name] for turn in turns]) for name in names},
        "by_category": _by_category(turns, names),
        "speedup": ratios,
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
