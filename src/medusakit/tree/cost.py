"""What a step costs and which budget pays: T(n) as it was measured, against what the tree is expected to give."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from medusakit.tree.topology import FloatArray


@dataclass(frozen=True, slots=True)
class StepCost:
    """Seconds of one forward pass of n nodes, by context bucket: tables[context][n] = T(n), all measured."""

    tables: Mapping[int, Mapping[int, float]]

    def __post_init__(self) -> None:
        if not self.tables or not all(self.tables.values()):
            raise ValueError("a cost table needs at least one context with at least one measured size")

    @classmethod
    def single(cls, table: Mapping[int, float], context: int = 256) -> StepCost:
        """One context for all."""
        return cls({context: table})

    def seconds(self, num_nodes: int, context: int | None = None) -> float:
        """T(num_nodes) in the bucket of `context` (None: the smallest bucket).

        T(n) is a staircase, so nothing is interpolated: between two measured sizes the dearer one counts, and past the
        largest every node costs as much as the dearest of the last step and the average.
        """
        table = self.tables[self._bucket(context)]
        if num_nodes in table:
            return table[num_nodes]
        sizes = sorted(table)
        at = bisect_left(sizes, num_nodes)
        if at < len(sizes):
            return max(table[size] for size in sizes[max(0, at - 1) : at + 1])
        return table[sizes[-1]] + (num_nodes - sizes[-1]) * _last_slope(table, sizes)

    def _bucket(self, context: int | None) -> int:
        """The smallest measured context that holds `context`, else the largest."""
        contexts = sorted(self.tables)
        at = 0 if context is None else bisect_left(contexts, context)
        return contexts[min(at, len(contexts) - 1)]


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


def best_budget(
    gains: Sequence[float] | FloatArray,
    cost: StepCost,
    draft_s: float | Sequence[float] | FloatArray,
    other_s: float,
    *,
    context: int | None = None,
    max_nodes: int | None = None,
) -> Budget:
    """The n that maximises (1 + E[accepted](n)) / (T(n) + T_draft + T_other); on ties the smaller.

    gains    per drafted node, in the order in which nodes are taken: the share of steps in which it is accepted, so
             that E[accepted](n) is the sum of the first n - 1
    draft_s  one draft: the same for every n, or draft_s[n - 1] for n nodes
    n = 1 is plain decoding, which skips the drafter; all n up to `max_nodes` are compared, because the staircase makes
    the curve rise again behind a dip.
    """
    return max(budgets(gains, cost, draft_s, other_s, context=context, max_nodes=max_nodes), key=_speedup)


def budgets(
    gains: Sequence[float] | FloatArray,
    cost: StepCost,
    draft_s: float | Sequence[float] | FloatArray,
    other_s: float,
    *,
    context: int | None = None,
    max_nodes: int | None = None,
) -> list[Budget]:
    """Every budget from 1 (plain) up, as `best_budget` compares them."""
    limit = len(gains) + 1 if max_nodes is None else min(len(gains) + 1, max_nodes)
    taus = 1.0 + np.concatenate([[0.0], np.cumsum(np.asarray(gains, dtype=np.float64))])
    drafts = np.asarray(draft_s, np.float64)
    drafts = drafts if drafts.ndim else np.full(limit, drafts)
    plain_s = cost.seconds(1, context) + other_s
    found = [Budget(1, 1.0, plain_s, 1.0)]
    for num_nodes in range(2, limit + 1):
        step_s = cost.seconds(num_nodes, context) + float(drafts[num_nodes - 1]) + other_s
        tau = float(taus[num_nodes - 1])
        found.append(Budget(num_nodes, tau, step_s, tau * plain_s / step_s))
    return found


def _speedup(budget: Budget) -> float:
    return budget.speedup


def predicted_speedup(
    tau: float, num_nodes: int, cost: StepCost, draft_s: float, other_s: float, *, context: int | None = None
) -> float:
    """tau / ((T(n) + T_draft + T_other) / T(1)): MISSION's formula, every term measured.

    T_other here is what speculation adds outside forward and draft; plain decoding's own is taken as nothing.
    """
    step_s = cost.seconds(num_nodes, context) + draft_s + other_s
    return tau * cost.seconds(1, context) / step_s
