"""A running server's own histograms of lengths: Prometheus text, with the names that vLLM and its kin use."""

from __future__ import annotations

import math
import re
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from medusakit.errors import RuntimeFailure

TIMEOUT_S = 10.0
PROMPT, OUTPUT = "prompt_tokens", "generation_tokens"
RUNNING, STARTED = "num_requests_running", "process_start_time_seconds"
LIMITS = ("max_num", "iteration", "remaining")  # histograms of something else with such an end
_SAMPLE = re.compile(r"^(?P<name>[A-Za-z_:][\w:]*)(?:\{(?P<labels>.*)\})?\s+(?P<value>\S+)(?:\s+-?\d+)?$")
_BOUND = re.compile(r'(?:^|,)\s*le="(?P<bound>[^"]*)"')


@dataclass(frozen=True, slots=True)
class Histogram:
    """Cumulative counts by upper bound (the last one infinite), over all label sets; total: sum of the values.

    At least one value has been counted.
    """

    buckets: Mapping[float, float]
    total: float

    @property
    def count(self) -> float:
        return max(self.buckets.values(), default=0.0)

    @property
    def mean(self) -> float:
        return self.total / self.count

    @property
    def highest(self) -> float:
        """Upper bound of the highest bucket that holds something; infinite if only the last one has it."""
        return min(bound for bound, count in self.buckets.items() if count >= self.count)

    def quantile(self, share: float) -> float:
        """Linear within its bucket, as Prometheus' histogram_quantile; in the last bucket its lower bound."""
        wanted, low, before = share * self.count, 0.0, 0.0
        for bound, count in sorted(self.buckets.items()):
            if count >= wanted and count > before:
                return low if math.isinf(bound) else low + (bound - low) * (wanted - before) / (count - before)
            low, before = bound, count
        return low


@dataclass(frozen=True, slots=True)
class Metrics:
    """running: requests in flight now. started_s: when the server's process began, seconds since 1970."""

    prompt: Histogram
    output: Histogram
    running: float | None
    started_s: float | None


def fetch_metrics(url: str) -> Metrics:
    """GET `url`/metrics. Raises RuntimeFailure: no server, no such page, no histograms of lengths in it."""
    address = url if url.rstrip("/").endswith("/metrics") else f"{url.rstrip('/')}/metrics"
    if not address.startswith(("http://", "https://")):
        raise RuntimeFailure(f"{url} is no address of a server", hint="--url http://localhost:8000")
    try:
        with urllib.request.urlopen(address, timeout=TIMEOUT_S) as answer:
            text = answer.read().decode("utf-8", errors="replace")
    except (urllib.error.URLError, OSError, ValueError) as error:
        reason = getattr(error, "reason", error)
        raise RuntimeFailure(f"{address} cannot be read: {reason}", hint="--url http://localhost:8000") from None
    return parse_metrics(text, address)


def parse_metrics(text: str, where: str) -> Metrics:
    """The histograms `*prompt_tokens` and `*generation_tokens`, and gauges beside them. Raises RuntimeFailure."""
    buckets: dict[str, dict[float, float]] = {}
    plain: dict[str, float] = {}
    for line in text.splitlines():
        sample = None if line.startswith("#") else _SAMPLE.match(line.strip())
        if sample is None:
            continue
        name, value = sample["name"], _number(sample["value"])
        bound = _BOUND.search(sample["labels"] or "")
        if name.endswith("_bucket") and bound is not None:
            family = buckets.setdefault(name.removesuffix("_bucket"), {})
            family[_number(bound["bound"])] = family.get(_number(bound["bound"]), 0.0) + value
        else:
            plain[name] = plain.get(name, 0.0) + value
    prompt, output = (_histogram(buckets, plain, end, where) for end in (PROMPT, OUTPUT))
    if not prompt.count or not output.count:
        raise RuntimeFailure(f"{where} has counted no request yet", hint="the same command after some requests")
    return Metrics(prompt, output, _ending(plain, RUNNING), _ending(plain, STARTED))


def _histogram(
    buckets: Mapping[str, Mapping[float, float]], plain: Mapping[str, float], end: str, where: str
) -> Histogram:
    """The family of the shortest name that ends so: `vllm:request_prompt_tokens`, `medusa_request_prompt_tokens`."""
    names = [name for name in buckets if name.endswith(end) and not any(word in name for word in LIMITS)]
    if not names:
        raise RuntimeFailure(
            f"{where} has no histogram of lengths: nothing ends in {end}_bucket",
            hint="a log of requests instead: medusa profile requests.jsonl",
        )
    name = min(names, key=lambda name: (len(name), name))
    return Histogram(buckets[name], plain.get(f"{name}_sum", 0.0))


def _ending(plain: Mapping[str, float], end: str) -> float | None:
    return next((value for name, value in plain.items() if name.endswith(end)), None)


def _number(text: str) -> Any:
    try:
        return float(text.replace("Inf", "inf"))
    except ValueError:
        return 0.0
