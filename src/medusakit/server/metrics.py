"""What Prometheus reads. Counters come from the scheduler's own totals at every scrape; histograms are told."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from prometheus_client import CollectorRegistry, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from medusakit.engine.jobs import Snapshot
from medusakit.engine.step import Outcome
from medusakit.server.heat import Heat
from medusakit.server.window import Minute, Window

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120)
TOKEN_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.2, 0.5, 1)
STEP_SECONDS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1)


@dataclass(frozen=True, slots=True)
class Finished:
    """One answer that ended. ttft_s and e2e_s since its request came; tpot_s: per token after the first."""

    ttft_s: float | None
    tpot_s: float | None
    e2e_s: float
    queue_s: float | None


class Metrics:
    """prefix: `medusa_`, or `vllm:` for boards made for that. snapshot: None while the model loads."""

    def __init__(self, prefix: str, window: Window, snapshot: Callable[[], Snapshot | None], info: Mapping[str, str]):
        self.registry = CollectorRegistry(auto_describe=False)
        self.window, self.heat = window, Heat()
        self._nodes: dict[int, int] = {}
        self._info = dict(info)
        self._step = self._histogram(f"{prefix}step_seconds", "time of a step by phase", STEP_SECONDS, ("phase",))
        self._ttft = self._histogram(f"{prefix}time_to_first_token_seconds", "request to first token", SECONDS)
        self._itl = self._histogram(f"{prefix}inter_token_latency_seconds", "between two updates", TOKEN_SECONDS)
        self._tpot = self._histogram(
            f"{prefix}time_per_output_token_seconds", "per token after the first", TOKEN_SECONDS
        )
        self._e2e = self._histogram(f"{prefix}e2e_request_latency_seconds", "request to last token", SECONDS)
        self._queue = self._histogram(f"{prefix}request_queue_time_seconds", "request to prefill", SECONDS)
        self.registry.register(_Totals(prefix, self, snapshot))

    @property
    def nodes(self) -> Mapping[int, int]:
        return self._nodes

    @property
    def info(self) -> Mapping[str, str]:
        return self._info

    def describe(self, **info: str) -> None:
        """What is served, once it is known."""
        self._info.update(info)

    def on_step(self, outcome: Outcome) -> None:
        """Called on the inference thread."""
        self.window.add(outcome)
        for topology, kept in outcome.walked:
            self.heat.add(topology, kept)
        self._step.labels("draft").observe(outcome.draft_s)
        self._step.labels("forward").observe(outcome.forward_s)
        self._step.labels("verify").observe(outcome.other_s)

    def on_tokens(self, gap_s: float | None, nodes: Iterable[int]) -> None:
        """An update came, `gap_s` after the one before; tree nodes of its accepted tokens."""
        if gap_s is not None:
            self._itl.observe(gap_s)
        for node in nodes:
            self._nodes[node] = self._nodes.get(node, 0) + 1

    def on_finished(self, finished: Finished) -> None:
        for histogram, value in (
            (self._ttft, finished.ttft_s),
            (self._tpot, finished.tpot_s),
            (self._e2e, finished.e2e_s),
            (self._queue, finished.queue_s),
        ):
            if value is not None:
                histogram.observe(value)

    def text(self) -> bytes:
        return generate_latest(self.registry)

    def _histogram(self, name: str, text: str, buckets: tuple[float, ...], labels: tuple[str, ...] = ()) -> Histogram:
        return Histogram(name, text, labels, buckets=buckets, registry=self.registry)


class _Totals(Collector):
    """Counters and gauges as they are at the moment of a scrape."""

    def __init__(self, prefix: str, metrics: Metrics, snapshot: Callable[[], Snapshot | None]) -> None:
        self._prefix, self._metrics, self._snapshot = prefix, metrics, snapshot

    def describe(self) -> Iterable[Metric]:
        return ()

    def collect(self) -> Iterable[Metric]:
        info = self._metrics.info
        yield self._family(GaugeMetricFamily, "build_info", "what runs", {tuple(info.values()): 1}, tuple(info))
        yield from self._minute(self._metrics.window.minute())
        nodes = {(str(node),): count for node, count in sorted(self._metrics.nodes.items())}
        yield self._family(CounterMetricFamily, "tree_node_accepted", "accepted tokens by tree node", nodes, ("node",))
        found = self._snapshot()
        if found is not None:
            yield from self._state(found)
            yield from self._counters(found)

    def _minute(self, minute: Minute) -> Iterable[Metric]:
        """A figure without data is left out: a zero would raise alarms while nobody asks anything."""
        for name, text, value in (
            ("rho_eff_rolling_1m", "1 - (1 - rho)^D over the last minute", minute.rho_eff),
            ("rho_rolling_1m", "accepted over offered depths of the last minute", minute.rho),
            ("tokens_per_step", "tokens of a row in a step, last minute", minute.tokens_per_step),
            ("verify_time_ratio", "share of step time in the model's passes, last minute", minute.verify_time_ratio),
        ):
            if value is not None:
                yield self._family(GaugeMetricFamily, name, text, {(): value})

    def _state(self, found: Snapshot) -> Iterable[Metric]:
        gauges = {
            "num_requests_running": ("jobs that decode", found.running),
            "num_requests_waiting": ("jobs that wait", found.waiting),
            "kv_cache_usage_ratio": (
                "share of the rows' positions in use",
                found.kv_positions / (found.kv_capacity or 1),
            ),
            "prefix_cache_bytes": ("KV kept of finished jobs", found.cache.num_bytes),
            "speculation_enabled": ("1: switched on", found.speculation),
            "speculation_active": ("1: on, and not resting", found.drafting),
        }
        if found.guard_round is not None:
            gauges["speed_over_plain"] = (
                "speed over plain decoding's, last round of 64 steps",
                found.guard_round.speed,
            )
        for name, (text, value) in gauges.items():
            yield self._family(GaugeMetricFamily, name, text, {(): float(value)})

    def _counters(self, found: Snapshot) -> Iterable[Metric]:
        totals, cache = found.totals, found.cache
        plain = {
            "spec_decode_num_drafts": ("verify passes of rows that drafted", totals.drafts),
            "spec_decode_num_draft_tokens": ("drafted nodes verified", totals.draft_tokens),
            "spec_decode_num_accepted_tokens": ("drafted tokens kept", totals.accepted),
            "spec_decode_num_draft_depth": ("depths offered", totals.draft_depths),
            "prompt_tokens": ("tokens of prompts", totals.prompt_tokens),
            "generation_tokens": ("tokens generated", totals.generated_tokens),
            "prefix_cache_hit_tokens": ("prompt tokens whose KV was kept", totals.cached_tokens),
            "prefix_cache_hits": ("jobs that found a prefix", cache.hits),
            "prefix_cache_queries": ("jobs that looked for one", cache.hits + cache.misses),
        }
        for name, (text, value) in plain.items():
            yield self._family(CounterMetricFamily, name, text, {(): float(value)})
        positions = {(str(place),): float(count) for place, count in enumerate(totals.accepted_by_depth)}
        name = "spec_decode_num_accepted_tokens_per_pos"
        yield self._family(CounterMetricFamily, name, "accepted at a depth, from 0", positions, ("position",))
        steps = {(mode,): float(count) for mode, count in totals.steps.items()}
        yield self._family(CounterMetricFamily, "steps", "verify passes by mode", steps, ("mode",))
        failures = {(name,): float(count) for name, count in totals.drafter_failures.items()}
        yield self._family(CounterMetricFamily, "drafter_failures", "drafters that failed", failures, ("drafter",))
        ends = {(reason,): float(count) for reason, count in totals.finished.items()}
        yield self._family(CounterMetricFamily, "request_success", "ended jobs", ends, ("finished_reason",))

    def _family(
        self,
        kind: type[GaugeMetricFamily] | type[CounterMetricFamily],
        name: str,
        text: str,
        values: Mapping[Any, float],
        labels: tuple[str, ...] = (),
    ) -> Metric:
        """values: tuple of label values -> number."""
        family = kind(self._prefix + name, text, labels=labels)
        for label, value in values.items():
            family.add_metric(label, value)
        return family
