"""Plain decoding and several ways of drafting over the same questions: what `bench grid` and `bench drafters` share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from medusakit.bench.answers import ControllerMode, EngineMode, Mode
from medusakit.bench.equality import equality_summary
from medusakit.bench.summary import Turn, mode_summary, speedup
from medusakit.bench.turns import answered_turns, collect
from medusakit.bench.workloads import load_suite
from medusakit.engine.controller import Controller
from medusakit.llm import LLM
from medusakit.settings import SamplingParams

PLAIN = "plain"
OnTurns = Callable[[int, int, str], None]  # turns done, turns in all, the fastest so far


@dataclass(frozen=True, slots=True)
class ContestConfig:
    """suite: a name or a JSONL file. limit: questions, spread evenly over categories; None: all."""

    suite: str = "mt-bench"
    limit: int | None = 8
    params: SamplingParams = field(default_factory=lambda: SamplingParams(max_tokens=128, seed=0))
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Contest:
    """All turns answered by plain and by every entry."""

    turns: Sequence[Turn]
    identical: dict[str, Any]
    seed: int

    def summary(self, name: str, category: str | None = None) -> dict[str, Any]:
        """The figures of one entry (summary.mode_summary), over all turns or over those of a category."""
        turns = [turn for turn in self.turns if category in (None, turn.category)]
        return mode_summary([turn.answers[name] for turn in turns])

    def speedup(self, name: str) -> dict[str, Any]:
        """Speed over plain's: ratio, ci95, by_category, by_category_ci95."""
        return speedup(self.turns, name, PLAIN, seed=self.seed)

    @property
    def categories(self) -> list[str]:
        return sorted({turn.category for turn in self.turns})


def run_contest(
    llm: LLM, entries: Sequence[tuple[str, Controller]], config: ContestConfig, on_turns: OnTurns | None = None
) -> Contest:
    """Every turn is answered by plain and by all entries in one process, who goes first rotates.

    Raises UsageError where no question fits the context.
    """
    plain: Mode = EngineMode(llm, speculation=False)
    modes = [plain, *(ControllerMode(name, llm, controller) for name, controller in entries)]
    questions = load_suite(config.suite, limit=config.limit)
    total = sum(len(question.turns) for question in questions)

    def tell(turns: Sequence[Turn]) -> None:
        if on_turns is not None:
            on_turns(len(turns), total, _leader(turns))

    turns, differences = collect(llm, modes, answered_turns(llm, modes, questions, config.params), tell)
    return Contest(turns, {pair: equality_summary(found) for pair, found in differences.items()}, config.seed)


def _leader(turns: Sequence[Turn]) -> str:
    """Name and speed of the fastest so far."""
    speed: dict[str, float] = {}
    for name in turns[0].answers:
        seconds = sum(turn.answers[name].decode_s for turn in turns)
        speed[name] = sum(turn.answers[name].tokens for turn in turns) / seconds if seconds else 0.0
    best = max(speed, key=speed.__getitem__)
    return f"{best} {speed[best]:.1f} tok/s, plain {speed[PLAIN]:.1f}"
