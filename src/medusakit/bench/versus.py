"""Speculation against plain decoding under load: two sides, asked the same in turns, so that drift hits both alike.

The sides are one server whose speculation is switched between rounds, or two servers. Beside the measured ratio of
throughputs stands the one that T(n) and tau predict: T(n) as the server measured it at load, and tau, nodes and rows as
differences of what /v1/state told before and after each side's rounds. It knows neither prefill nor HTTP.
"""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from medusakit.bench.load import (
    LoadConfig,
    OnRequest,
    Timed,
    about,
    address,
    check_answered,
    counter,
    measured,
    point,
    reason,
    remedy,
)
from medusakit.bench.stats import paired_ratio
from medusakit.errors import RuntimeFailure, UsageError
from medusakit.tree.cost import StepCost

TIMEOUT_S = 30
NAMES = ("speculation", "plain")
_COUNTS = ("row_tokens", "row_steps", "draft_tokens", "draft_s", "forward_s", "other_s")


@dataclass(slots=True)
class Side:
    """One way to decode. switch: what /admin/speculation is told before a round; None: nothing."""

    name: str
    config: LoadConfig
    switch: bool | None = None
    timed: list[Timed] = field(default_factory=list)
    rounds: list[tuple[float, float]] = field(default_factory=list)  # tokens, seconds
    totals: dict[str, float] = field(default_factory=dict)

    def run(self, concurrency: int, prompts: Sequence[str], count: Callable[[Timed], None]) -> None:
        """One round."""
        if self.switch is not None:
            ask_json(self.config, "/admin/speculation", {"on": self.switch})
        before = totals(self.config)
        timed, seconds = measured(self.config, concurrency, prompts, count)
        after = totals(self.config)
        self.timed += timed
        self.rounds.append((sum(one.tokens for one in timed if not one.error), seconds))
        for name in before.keys() & after.keys():
            self.totals[name] = self.totals.get(name, 0.0) + after[name] - before[name]

    def point(self, concurrency: int) -> dict[str, Any]:
        return point(concurrency, self.timed, sum(seconds for _, seconds in self.rounds), self.config.slo_ms)


def run_versus(
    config: LoadConfig,
    prompts: Sequence[str],
    *,
    against: str | None = None,
    num_rounds: int = 4,
    num_samples: int = 0,
    on_request: OnRequest | None = None,
) -> dict[str, Any]:
    """The document: points of speculation, each with its `plain` one, ratios, and where speculation stops paying.

    against  URL of the same server without speculation; None: the one server is switched
    Raises as `run_load`, and UsageError where the server cannot be switched.
    """
    address(config.url)
    before = _speculation(config) if against is None else None
    try:
        points, samples = _points(config, prompts, against, num_rounds, num_samples, on_request)
    finally:
        if before is not None:
            ask_json(config, "/admin/speculation", {"on": before})
    found = {"bench": "serve", "config": about(config) | {"against": against, "toggle": against is None}}
    return found | {"points": points, "stops_paying": stops_paying(points), "samples": samples}


def joined(speculation: Mapping[str, Any], plain: Mapping[str, Any]) -> dict[str, Any]:
    """One document of two that were measured apart. Raises UsageError if no concurrency is in both."""
    others = {found["concurrency"]: found for found in plain["points"]}
    points = [
        found | {"plain": other, "ratio": found["tokens_per_s"] / other["tokens_per_s"], "ratio_ci95": None}
        for found in speculation["points"]
        if (other := others.get(found["concurrency"])) and other["tokens_per_s"]
    ]
    if not points:
        raise UsageError("the two files share no concurrency", hint="measure both with the same --concurrency")
    config = {"speculation": speculation["config"], "plain": plain["config"]}
    return {"bench": "serve", "config": config, "points": points, "stops_paying": stops_paying(points)}


def stops_paying(points: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    """The lowest concurrency with a ratio under 1, and the highest below it; None where there is none.

    certain: the whole interval is under 1.
    """
    ranked = sorted(points, key=lambda found: found["concurrency"])
    for place, found in enumerate(ranked):
        if found["ratio"] < 1:
            high = (found.get("ratio_ci95") or [None, None])[1]
            below = ranked[place - 1]["concurrency"] if place else None
            return {"concurrency": found["concurrency"], "pays_at": below, "certain": high is not None and high < 1}
    return None


def rounds_of(prompts: Sequence[str], num_requests: int, concurrency: int, num_rounds: int) -> list[list[str]]:
    """The prompts of every round: at least two rounds, none smaller than the concurrency."""
    rounds = max(2, min(num_rounds, num_requests // concurrency))
    size = max(concurrency, -(-num_requests // rounds))
    return [
        [prompts[(start + place) % len(prompts)] for place in range(size)] for start in range(0, rounds * size, size)
    ]


def predicted(
    speculation: Mapping[str, float], plain: Mapping[str, float], cost: StepCost | None
) -> dict[str, float] | None:
    """tau T(rows) / (T(nodes) + draft and other time), of the mean pass, with what both sides' steps took beside it.

    None where the states told nothing (another server) or nothing was decoded.
    """
    if cost is None or not all(found.get("steps") and found.get("row_steps") for found in (speculation, plain)):
        return None
    passes, tau = speculation["steps"], speculation["row_tokens"] / speculation["row_steps"]
    rows, nodes = speculation["row_steps"] / passes, (speculation["draft_tokens"] + speculation["row_steps"]) / passes
    added_s = (speculation["draft_s"] + speculation["other_s"]) / passes - plain["other_s"] / plain["steps"]
    return {
        "ratio": tau * cost.seconds(round(rows)) / (cost.seconds(round(nodes)) + added_s),
        "tau": tau,
        "rows_per_step": rows,
        "nodes_per_step": nodes,
        "step_ms": 1e3 * _seconds(speculation) / passes,
        "plain_step_ms": 1e3 * _seconds(plain) / plain["steps"],
    }


def step_cost(config: LoadConfig) -> StepCost | None:
    """T(n) as the server measured it at load; None from a server that does not tell."""
    try:
        tables = ask_json(config, "/v1/state")["step_ms"]
        shortest = tables[min(tables, key=int)]
        return StepCost.single({int(size): taken / 1e3 for size, taken in shortest.items()})
    except (RuntimeFailure, KeyError, TypeError, ValueError, AttributeError):
        return None


def totals(config: LoadConfig) -> dict[str, float]:
    """Counters of the server's /v1/state; none from a server that has no such page."""
    try:
        found = ask_json(config, "/v1/state")["scheduler"]["totals"]
    except (RuntimeFailure, KeyError, TypeError):
        return {}
    return {name: float(found[name]) for name in _COUNTS} | {"steps": float(sum(found["steps"].values()))}


def ask_json(config: LoadConfig, path: str, body: Mapping[str, Any] | None = None) -> Any:
    """GET, or POST where there is a body. Raises RuntimeFailure with what the server says."""
    host, port = address(config.url)
    headers = {"content-type": "application/json"}
    if config.api_key:
        headers["authorization"] = f"Bearer {config.api_key}"
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"http://{host}:{port}{path}", data, headers)
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as error:
        told = f"{error.code} {error.reason}: {reason(error.read().decode('utf-8', 'replace'))}"
        raise RuntimeFailure(f"{config.url}{path} answered {told}", hint=remedy(told)) from None
    except (OSError, ValueError) as error:
        raise RuntimeFailure(f"{config.url}{path} cannot be read: {error}", hint="medusa serve") from None


def _points(
    config: LoadConfig,
    prompts: Sequence[str],
    against: str | None,
    num_rounds: int,
    num_samples: int,
    on_request: OnRequest | None,
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    rounds = {one: rounds_of(prompts, config.num_requests, one, num_rounds) for one in config.concurrency}
    count = counter(2 * sum(len(part) for found in rounds.values() for part in found), on_request)
    for side in _sides(config, against):
        side.run(1, prompts[:1], lambda timed: None)  # unmeasured: first passes allocate memory
    cost = step_cost(config)
    points: list[dict[str, Any]] = []
    samples: list[dict[str, Any]] = []
    for concurrency, parts in rounds.items():
        sides = _sides(config, against)
        for place, part in enumerate(parts):
            for side in sides if place % 2 == 0 else sides[::-1]:
                side.run(concurrency, part, count)
        points.append(_compared(concurrency, *sides, cost))
        check_answered(config, points, sides[0].timed + sides[1].timed)
        samples = samples or list(_samples([prompt for part in parts for prompt in part], sides))[:num_samples]
    return points, samples


def _sides(config: LoadConfig, against: str | None) -> tuple[Side, Side]:
    if against is None:
        return Side(NAMES[0], config, True), Side(NAMES[1], config, False)
    return Side(NAMES[0], config), Side(NAMES[1], replace(config, url=against))


def _compared(concurrency: int, speculation: Side, plain: Side, cost: StepCost | None) -> dict[str, Any]:
    ratio = paired_ratio([(*a, *b) for a, b in zip(speculation.rounds, plain.rounds, strict=True)])
    same = [a.text == b.text for a, b in zip(speculation.timed, plain.timed, strict=True) if not a.error + b.error]
    return speculation.point(concurrency) | {
        "rounds": len(plain.rounds),
        "ratio": ratio.ratio,
        "ratio_ci95": [ratio.low, ratio.high],
        "predicted": predicted(speculation.totals, plain.totals, cost),
        "same_answers": sum(same),
        "plain": plain.point(concurrency),
    }


def _samples(prompts: Sequence[str], sides: Sequence[Side]) -> Iterator[dict[str, Any]]:
    for place, prompt in enumerate(prompts):
        yield {"prompt": prompt, "answers": {side.name: side.timed[place].text for side in sides}}


def _speculation(config: LoadConfig) -> bool:
    """Whether it is on. Raises UsageError for a server that cannot be switched."""
    try:
        return bool(ask_json(config, "/v1/state")["scheduler"]["speculation"])
    except (RuntimeFailure, KeyError, TypeError) as error:
        message = f"{config.url} cannot be switched between speculation and plain decoding: {error}"
        raise UsageError(message, hint="--against URL   the same server with --no-speculation") from None


def _seconds(found: Mapping[str, float]) -> float:
    return found["draft_s"] + found["forward_s"] + found["other_s"]
