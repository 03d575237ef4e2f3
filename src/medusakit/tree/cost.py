"""What a step costs and which budget pays: T(n) as it was measured, against what the tree is expected to give."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from medusakit.tree.topology import FloatArray, IntArray

TimeArray = NDArray[np.float64]


@dataclass
class StepCost:
    """Seconds of one forward pass: tables[context][n] = T(n, context), all measured, for n nodes over that context.

    T(n) is a staircase, so over n nothing is interpolated: between two sizes measured at the shortest context the
    dearer one counts, and past the largest every node costs as much as the dearest of the last step and the average.
    What a longer context adds (attention reads every position for every node) is taken as linear in n and in the
    context, so a few sizes there are enough. Trees and guards of a model share one object, and read it at every step.
    """

    tables: Mapping[int, Mapping[int, float]]

    def __post_init__(self) -> None:
        if not self.tables or not all(self.tables.values()):
            raise ValueError("a cost table needs at least one context with at least one measured size")

    @classmethod
    def single(cls, table: Mapping[int, float], context: int = 256) -> StepCost:
        """One context for all."""
        return cls({context: table})

    def adopt(self, newer: StepCost) -> None:
        """Say what `newer` says from now on."""
        self.tables = newer.tables
        for derived in ("_curves", "_shortest", "_lines"):
            self.__dict__.pop(derived, None)

    def milliseconds(self) -> dict[int, dict[int, float]]:
        """What was measured, by context and number of nodes, for people to read."""
        return {
            context: {size: round(1e3 * seconds, 3) for size, seconds in sorted(table.items())}
            for context, table in sorted(self.tables.items())
        }

    def seconds(self, num_nodes: int, context: int | None = None) -> float:
        """T(num_nodes) over `context` positions (None, and less than the shortest measured: the shortest)."""
        return self._nearest(num_nodes) + float(self._added(np.array([num_nodes]), context)[0])

    def curve(self, max_nodes: int, context: int | None = None, rows: int = 1) -> TimeArray:
        """[max_nodes] float64: seconds of a pass of 1, 2, ... nodes in each of `rows` rows."""
        base = self._curves.get((max_nodes, rows))
        if base is None:
            sizes = np.arange(1, max_nodes + 1) * rows
            base = sizes, np.array([self._nearest(size) for size in sizes.tolist()])
            self._curves[max_nodes, rows] = base
        sizes, nearest = base
        return nearest + self._added(sizes, context)

    @cached_property
    def _curves(self) -> dict[tuple[int, int], tuple[IntArray, TimeArray]]:
        return {}

    @cached_property
    def _shortest(self) -> int:
        return min(self.tables)

    def _nearest(self, num_nodes: int) -> float:
        return _from_table(self.tables[self._shortest], num_nodes)

    @cached_property
    def _lines(self) -> list[tuple[int, float, float]]:
        """(context, a, b), by context: it adds a + b n to the shortest one's T(n)."""
        lines = [(self._shortest, 0.0, 0.0)]
        for context in sorted(self.tables)[1:]:
            sizes = sorted(self.tables[context])
            added = [self.tables[context][size] - self._nearest(size) for size in sizes]
            slope, start = np.polyfit(sizes, added, 1) if len(sizes) > 1 else (0.0, added[0])
            lines.append((context, float(start), float(slope)))
        return lines

    def _added(self, sizes: IntArray, context: int | None) -> TimeArray:
        """Between two measured contexts, on the line between them; beyond the longest, on that through the last two."""
        if context is None or context <= self._shortest or len(self._lines) == 1:
            return np.zeros(len(sizes))
        at = next((i for i, line in enumerate(self._lines) if line[0] >= context), len(self._lines) - 1)
        (low, low_start, low_slope), (high, start, slope) = self._lines[at - 1], self._lines[at]
        share = (context - low) / (high - low)
        fixed, by_node = low_start + share * (start - low_start), low_slope + share * (slope - low_slope)
        return np.array([max(fixed + by_node * size, 0.0) for size in sizes.tolist()])


def _from_table(table: Mapping[int, float], num_nodes: int) -> float:
    if num_nodes in table:
        return table[num_nodes]
    sizes = sorted(table)
    at = bisect_left(sizes, num_nodes)
    if at < len(sizes):
        return max(table[size] for size in sizes[max(0, at - 1) : at + 1])
    return table[sizes[-1]] + (num_nodes - sizes[-1]) * _last_slope(table, sizes)


def _last_slope(table: Mapping[int, float], sizes: Sequence[int]) -> float:
    last = sizes[-1]
    average = table[last] / last
    if len(sizes) == 1:
        return average
    return max(average, (table[last] - table[sizes[-2]]) / (last - sizes[-2]))


@dataclass(frozen=True, slots=True)
class Budget:
    """A number of rows a pass, root included, with what is expected of it.

    tau      tokens a step, bonus included
    step_s   T(n) + T_draft + T_other (plain decoding pays no draft)
    speedup  tokens per second over those of plain decoding, T_other paid by both
    """

    num_nodes: int
    tau: float
    step_s: float
    speedup: float


def budgets(
    gains: Sequence[float] | FloatArray,
    cost: StepCost,
    draft_s: float | Sequence[float] | FloatArray,
    other_s: float,
    *,
    max_nodes: int | None = None,
) -> list[Budget]:
    """Every budget from 1 (plain, which skips the drafter) up to `max_nodes`.

    gains    per drafted node, in the order in which nodes are taken: the share of steps in which it is accepted, so
             that E[accepted](n) is the sum of the first n - 1
    draft_s  one draft: the same for every n, or draft_s[n - 1] for n nodes
    """
    limit = len(gains) + 1 if max_nodes is None else min(len(gains) + 1, max_nodes)
    taus = 1.0 + np.concatenate([[0.0], np.cumsum(np.asarray(gains, dtype=np.float64))])
    drafts = np.asarray(draft_s, np.float64)
    drafts = drafts if drafts.ndim else np.full(limit, drafts)
    plain_s = cost.seconds(1) + other_s
    found = [Budget(1, 1.0, plain_s, 1.0)]
    for num_nodes in range(2, limit + 1):
        step_s = cost.seconds(num_nodes) + float(drafts[num_nodes - 1]) + other_s
        tau = float(taus[num_nodes - 1])
        found.append(Budget(num_nodes, tau, step_s, tau * plain_s / step_s))
    return found


def best_of(found: Sequence[Budget]) -> Budget:
    """The budget that maximises (1 + E[accepted](n)) / (T(n) + T_draft + T_other); on ties the smaller.

    All are compared, because the staircase of T(n) makes the curve rise again behind a dip.
    """
    return max(found, key=lambda budget: budget.speedup)


class Rate:
    """Tokens a second of late, as trees expect them: what a second is worth when the next tree is chosen.

    Taking, of every step, the nodes whose expected tokens exceed rate x time makes the long-run tokens a second largest
    (Dinkelbach's rule for ratios): easy steps get larger trees than the best ratio of that step alone would give them.
    """

    def __init__(self, keep: float = 0.98) -> None:
        self._keep, self._tokens, self._seconds = keep, 0.0, 0.0
        self.node_s = 0.0  # of one more node in a pass, of late

    @property
    def value(self) -> float | None:
        """None before the first step."""
        return self._tokens / self._seconds if self._tokens > 0 else None

    def add(self, tokens: float, seconds: float) -> None:
        self._tokens = self._keep * self._tokens + tokens
        self._seconds = self._keep * self._seconds + seconds

    def reset(self) -> None:
        self._tokens = self._seconds = self.node_s = 0.0

    def tokens_of(self, seconds: float) -> float:
        """What so many seconds are worth; nothing before the first step."""
        return seconds * (self.value or 0.0)
