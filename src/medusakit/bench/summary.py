"""From answers to the figures of a report. Pure functions of values.

speed = sum(tokens) / sum(decode seconds), prefill apart; tau = sum(tokens after the first) / sum(steps).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from medusakit.bench.answers import Answer
from medusakit.bench.stats import is_looping, paired_ratio
from medusakit.tree.cost import StepCost
from medusakit.tree.search import rho_eff


@dataclass(frozen=True, slots=True)
class Turn:
    """One question turn answered by every mode. group: what intervals resample over (the question)."""

    group: str
    category: str
    turn: int
    answers: Mapping[str, Answer]


def mode_summary(answers: Sequence[Answer]) -> dict[str, Any]:
    """The issue's keys of one mode, over all its answers."""
    tokens = sum(answer.tokens for answer in answers)
    steps = sum(answer.steps for answer in answers)
    seconds = sum(answer.decode_s for answer in answers)
    split = {
        "forward": sum(answer.forward_s for answer in answers),
        "draft": sum(answer.draft_s for answer in answers),
        "other": sum(answer.other_s for answer in answers),
    }
    return {
        "answers": len(answers),
        "tokens": tokens,
        "seconds": seconds,
        "tokens_per_s": tokens / seconds if seconds else 0.0,
        "tau": tokens / steps if steps else 1.0,
        "nodes_per_step": sum(answer.nodes for answer in answers) / steps if steps else 1.0,
        "accepted_by_depth": accepted_by_depth(answers),
        "rho": rho(answers),
        "rho_eff": rho_eff(rho(answers), mean_depth(answers)),
        "time_split": {name: part / seconds if seconds else 0.0 for name, part in split.items()},
        "ms_per_step": {name: 1e3 * part / steps if steps else 0.0 for name, part in split.items()},
        "prefill_s": sum(answer.prefill_s for answer in answers),
        "looping_share": sum(is_looping(answer.token_ids) for answer in answers) / max(1, len(answers)),
    }


def accepted_by_depth(answers: Sequence[Answer]) -> list[float]:
    """Share of the steps that offered depth d (from 1) in which a node of that depth was accepted."""
    depth = max((len(answer.offered) for answer in answers), default=0)
    shares = []
    for place in range(depth):
        offered = sum(answer.offered[place] for answer in answers if place < len(answer.offered))
        accepted = sum(answer.accepted[place] for answer in answers if place < len(answer.accepted))
        shares.append(accepted / offered if offered else 0.0)
    return shares


def rho(answers: Sequence[Answer]) -> float:
    """Accepted depths / offered depths: how much of what the trees reach for was kept. 0 where nothing was offered."""
    offered = sum(sum(answer.offered) for answer in answers)
    return sum(sum(answer.accepted) for answer in answers) / offered if offered else 0.0


def mean_depth(answers: Sequence[Answer]) -> float:
    """Depths offered by the steps that drafted, on average."""
    drafted = sum(answer.offered[0] for answer in answers if answer.offered)
    return sum(sum(answer.offered) for answer in answers) / drafted if drafted else 0.0


def speedups(turns: Sequence[Turn], modes: Sequence[str], *, seed: int) -> dict[str, Any]:
    """Every pair of modes, the faster named first: ratio, 95 % interval over questions, ratio by category."""
    pairs = [("medusa", "plain"), ("medusa", "hf"), ("plain", "hf")]
    return {
        f"{fast}/{slow}": speedup(turns, fast, slow, seed=seed) for fast, slow in pairs if {fast, slow} <= set(modes)
    }


def predicted(turns: Sequence[Turn], cost: StepCost) -> dict[str, float] | None:
    """What T(n, context) as measured at load promises for these passes, tau, draft and other time, and the share
    of it that was reached: tau x T(plain pass) / (T(pass) + T_draft + T_other), with means over all passes. T_other is
    what speculation adds. The table holds best readings; what else the machine did is not in it. None where no passes
    were written down."""
    medusa, plain = ([turn.answers[name] for turn in turns] for name in ("medusa", "plain"))
    if not any(answer.passes for answer in medusa) or not any(answer.passes for answer in plain):
        return None
    found, base = mode_summary(medusa), mode_summary(plain)
    added_s = sum(found["ms_per_step"][part] - base["ms_per_step"][part] for part in ("draft", "other")) / 1e3
    ratio = found["tau"] * _mean_pass_s(plain, cost) / (_mean_pass_s(medusa, cost) + added_s)
    reached = found["tokens_per_s"] / base["tokens_per_s"] / ratio if base["tokens_per_s"] else 0.0
    return {"ratio": ratio, "reached": reached}


def _mean_pass_s(answers: Sequence[Answer], cost: StepCost) -> float:
    passes = [cost.seconds(nodes, context) for answer in answers for nodes, context in answer.passes]
    return sum(passes) / len(passes)


def speedup(turns: Sequence[Turn], fast: str, slow: str, *, seed: int) -> dict[str, Any]:
    """Speed of one mode over another's: ratio, 95 % interval over questions, the same by category, and without the
    answers that end in a loop, which are easy to draft."""
    whole = paired_ratio(_sums(turns, fast, slow), seed=seed)
    sound = [turn for turn in turns if not is_looping(turn.answers[slow].token_ids)]
    parts = {
        category: paired_ratio(_sums([turn for turn in turns if turn.category == category], fast, slow), seed=seed)
        for category in sorted({turn.category for turn in turns})
    }
    return {
        "ratio": whole.ratio,
        "ci95": [whole.low, whole.high],
        "by_category": {category: part.ratio for category, part in parts.items()},
        "by_category_ci95": {category: [part.low, part.high] for category, part in parts.items()},
        "without_loops": _without_loops(sound, fast, slow, seed=seed),
    }


def _without_loops(turns: Sequence[Turn], fast: str, slow: str, *, seed: int) -> dict[str, Any] | None:
    """None if every answer loops."""
    if not turns:
        return None
    found = paired_ratio(_sums(turns, fast, slow), seed=seed)
    tau = mode_summary([turn.answers[fast] for turn in turns])["tau"]
    return {"answers": len(turns), "ratio": found.ratio, "ci95": [found.low, found.high], "tau": tau}


def _sums(turns: Sequence[Turn], fast: str, slow: str) -> list[tuple[float, float, float, float]]:
    """Per question: tokens and seconds of the fast mode, tokens and seconds of the slow one."""
    groups: dict[str, list[float]] = {}
    for turn in turns:
        left, right = turn.answers[fast], turn.answers[slow]
        values = groups.setdefault(turn.group, [0.0] * 4)
        for place, value in enumerate((left.tokens, left.decode_s, right.tokens, right.decode_s)):
            values[place] += value
    return [(v[0], v[1], v[2], v[3]) for v in groups.values()]
