"""`medusa profile`: lengths and load of real requests, and the settings that suit them.

Concurrency is arrivals per second times seconds a request (Little's law); how many requests are in flight at once then
follows a Poisson distribution, whose 95 % point is the number of rows to provide where no peak was seen.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from medusakit.bench.candidates import alone
from medusakit.bench.circumstances import machine, versions
from medusakit.bench.prometheus import Histogram, Metrics
from medusakit.bench.requests import Request
from medusakit.engine.measure import draft_seconds
from medusakit.engine.speculation import MAX_BUDGET, OTHER_S
from medusakit.llm import LLM
from medusakit.tree.cost import Budget, StepCost, best_of, budgets

CONTEXT_STEP = 256
COVERED = 0.95  # of the time, enough rows
EXACT_BELOW = 100.0  # mean of a Poisson distribution that is summed; above, it is as good as normal
NORMAL_95 = 1.645


@dataclass(frozen=True, slots=True)
class Lengths:
    """Tokens. p50, p95: of a log, values that occurred; of a histogram, interpolated within a bucket. most: at most."""

    p50: float
    p95: float
    mean: float
    most: float


@dataclass(frozen=True, slots=True)
class Load:
    """rate_per_s: arrivals. concurrency: mean number of requests in flight; peak: most at once. None: not known."""

    rate_per_s: float | None = None
    concurrency: float | None = None
    peak: int | None = None


@dataclass(frozen=True, slots=True)
class Profile:
    """longest: most tokens of prompt and answer together (an upper bound from histograms; infinite if unknown)."""

    requests: int
    prompt_tokens: Lengths
    output_tokens: Lengths
    longest: float
    load: Load


def profile_requests(requests: Sequence[Request]) -> Profile:
    """From a log. Raises ValueError for none."""
    prompts = [request.prompt_tokens for request in requests]
    outputs = [request.output_tokens for request in requests]
    longest = max(map(sum, zip(prompts, outputs, strict=True)))
    return Profile(len(requests), _lengths(prompts), _lengths(outputs), longest, load_of(requests))


def profile_metrics(metrics: Metrics, now_s: float) -> Profile:
    """From a server's histograms. now_s: seconds since 1970, when they were read."""
    rate = None
    if metrics.started_s is not None and now_s > metrics.started_s:
        rate = metrics.prompt.count / (now_s - metrics.started_s)
    return Profile(
        int(metrics.output.count),
        _of_histogram(metrics.prompt),
        _of_histogram(metrics.output),
        metrics.prompt.highest + metrics.output.highest,
        Load(rate, metrics.running or None),
    )


def load_of(requests: Sequence[Request]) -> Load:
    """Arrival rate where every request has a time, concurrency where it has a duration too."""
    starts = sorted(request.start_s for request in requests if request.start_s is not None)
    if len(starts) < max(2, len(requests)) or starts[0] == starts[-1]:
        return Load()
    rate = (len(starts) - 1) / (starts[-1] - starts[0])
    spans = [
        (one.start_s, one.start_s + one.duration_s)
        for one in requests
        if one.start_s is not None and one.duration_s is not None
    ]
    if len(spans) < len(requests):
        return Load(rate)
    whole = max(end for _, end in spans) - starts[0]
    return Load(rate, sum(end - start for start, end in spans) / whole, _peak(spans))


def rows_for(concurrency: float) -> int:
    """Smallest number that a Poisson variable of this mean does not exceed in COVERED of the time, 1 at least.

    >>> rows_for(0.0), rows_for(1.0), rows_for(4.0)
    (1, 3, 8)
    """
    if concurrency > EXACT_BELOW:
        return math.ceil(concurrency + NORMAL_95 * math.sqrt(concurrency))
    rows, chance = 0, math.exp(-concurrency)
    covered = chance
    while covered < COVERED:
        rows += 1
        chance *= concurrency / rows
        covered += chance
    return max(1, rows)


def suggest(profile: Profile, llm: LLM | None) -> dict[str, Any]:
    """max_context, max_rows and the budget that pays at that load; None where it cannot be known.

    A step of r rows with n nodes each is taken to cost T(r n), and r drafts.
    """
    limit = None if llm is None else llm.runtime.capabilities.max_context
    found: dict[str, Any] = {"max_context": _context(profile.longest, limit), "max_rows": None}
    concurrency = profile.load.concurrency
    if concurrency is None and profile.load.rate_per_s is not None and llm is not None:
        concurrency = profile.load.rate_per_s * _service_s(profile, llm)
        found["concurrency_estimated"] = concurrency
    if concurrency is not None:
        found["max_rows"] = profile.load.peak or rows_for(concurrency)
    rows = max(1, round(concurrency or 1))
    by_rows = [] if llm is None else budgets_by_rows(llm, {1, rows, found["max_rows"] or 1}, typical_context(profile))
    found["budget"] = next((best["num_nodes"] for best in by_rows if best["rows"] == rows), None)
    return found | {"by_rows": by_rows}


def budgets_by_rows(llm: LLM, rows: set[int], context: int) -> list[dict[str, Any]]:
    """Per number of rows the budget that pays most there; empty without a calibrated tree."""
    found = [(count, _budget(llm, count, context)) for count in sorted(rows)]
    return [{"rows": count, **asdict(best)} for count, best in found if best is not None]


def typical_context(profile: Profile) -> int:
    """Positions that an average request holds half-way through its answer."""
    return round(profile.prompt_tokens.mean + profile.output_tokens.mean / 2)


def document(profile: Profile, suggestion: dict[str, Any], source: Sequence[str]) -> dict[str, Any]:
    """The JSON document."""
    return {
        **asdict(profile),
        "source": list(source),
        "suggestion": suggestion,
        "machine": machine(),
        "versions": versions(),
    }


def _budget(llm: LLM, rows: int, context: int) -> Budget | None:
    parts = llm.parts
    drafter, cost = alone(parts), parts.cost
    if parts.artifact is None or cost is None or drafter is None:
        return None
    topology = parts.artifact.topology(MAX_BUDGET)
    together = StepCost.single({n: cost.seconds(rows * n, context) for n in range(1, topology.num_nodes + 1)})
    gains = [node.acceptance for node in parts.artifact.tree.nodes]
    draft_s = draft_seconds(drafter, topology, llm.runtime.spec.hidden_size)
    return best_of(budgets(gains, together, rows * draft_s, rows * OTHER_S, max_nodes=topology.num_nodes))


def _service_s(profile: Profile, llm: LLM) -> float:
    """Seconds that one request keeps a row, alone on the machine: its answer's steps (the prompt's pass left out)."""
    cost, best = llm.parts.cost, _budget(llm, 1, typical_context(profile))
    if best is not None:
        return profile.output_tokens.mean / best.tau * best.step_s
    return 0.0 if cost is None else profile.output_tokens.mean * (cost.seconds(1) + OTHER_S)


def _context(longest: float, limit: int | None) -> int | None:
    """Room for the longest request, rounded up; at most what the model holds."""
    if math.isinf(longest):
        return limit
    wanted = CONTEXT_STEP * math.ceil(longest / CONTEXT_STEP)
    return wanted if limit is None else min(wanted, limit)


def _lengths(values: Sequence[int]) -> Lengths:
    half, most = np.quantile(values, [0.5, 0.95], method="inverted_cdf").tolist()
    return Lengths(half, most, float(np.mean(values)), max(values))


def _of_histogram(histogram: Histogram) -> Lengths:
    return Lengths(histogram.quantile(0.5), histogram.quantile(0.95), histogram.mean, histogram.highest)


def _peak(spans: Sequence[tuple[float, float]]) -> int:
    """Most spans that overlap; one that ends where another starts does not."""
    changes = sorted([(start, 1) for start, _ in spans] + [(end, -1) for _, end in spans])
    in_flight = np.cumsum([change for _, change in changes])
    return int(in_flight.max())
