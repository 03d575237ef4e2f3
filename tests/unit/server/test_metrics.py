"""Figures of the last minute, and that alert rules and the board name only metrics that the server has."""

import json
import re
import threading
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from fakes import FakeClock
from medusakit.engine.guard import Round
from medusakit.engine.jobs import CacheState, Job, Snapshot, Totals
from medusakit.engine.plan import PLAIN_PLAN
from medusakit.engine.step import Outcome
from medusakit.server.metrics import Finished, Metrics
from medusakit.server.window import Minute, Window
from medusakit.settings import SamplingParams
from toy_llm import toy_llm, toy_server

DEPLOY = Path(__file__).parents[3] / "deploy"


def outcome(*, offered=6, accepted=3, tokens=5):
    return Outcome(PLAIN_PLAN, 2, tokens, offered, accepted, 14, 7, 50, 0.01, 0.08, 0.01)


def test_a_minute_is_forgotten():
    clock = FakeClock(100)
    window = Window(clock)
    assert window.minute() == Minute()
    window.add(outcome())
    clock.advance(30)
    window.add(outcome(offered=0, accepted=0, tokens=2))
    both = window.minute()
    assert (both.tokens_per_step, both.rho) == (7 / 4, 0.5)
    assert both.rho_eff == pytest.approx(1 - 0.5**3)
    clock.advance(31)
    later = window.minute()
    assert (later.tokens_per_step, later.rho, later.rho_eff) == (1.0, None, None)
    assert later.verify_time_ratio == pytest.approx(0.8)
    clock.advance(31)
    assert window.minute() == Minute()


def everything():
    """Names of all metrics, when everything has happened once."""
    clock = FakeClock(100)
    totals = Totals({"tree": 1}, accepted_by_depth=(1,), offered_by_depth=(1,), finished={"stop": 1})
    last = Round(0.5, 0.9, 2.0, 1.3, 3.0)
    found = Snapshot(1, 0, 8, False, (), 5, 100, 8, CacheState(), totals, True, True, last)
    metrics = Metrics("medusa_", Window(clock), lambda: found, {"version": "1"})
    metrics.on_step(outcome())
    metrics.on_tokens(0.1, [1])
    metrics.on_finished(Finished(0.1, 0.01, 1.0, 0.05))
    families = text_string_to_metric_families(metrics.text().decode())
    return {sample.name for family in families for sample in family.samples}


@pytest.mark.parametrize("path", sorted((*DEPLOY.rglob("*.yml"), *DEPLOY.rglob("*.json"))), ids=lambda path: path.name)
def test_deployed_files_name_metrics_that_exist(path):
    text = path.read_text(encoding="utf-8")
    expressions = re.findall(r"expr: (.*)", text)
    if path.suffix == ".json":
        expressions = [target["expr"] for panel in json.loads(text)["panels"] for target in panel["targets"]]
    named = {name for expression in expressions for name in re.findall(r"\bmedusa_\w+", expression)}
    assert len(named) > 5
    assert named <= everything()


def test_counters_begin_after_the_warm_up():
    """It is no request of anybody's: neither counts, nor histograms, nor the cache know of it."""
    with toy_server(toy_llm()) as service:
        scheduler = service.serving().scheduler
        found = scheduler.snapshot()
        assert (found.totals, found.cache) == (
            Totals({"tree": 0, "plain": 0}),
            CacheState(max_bytes=found.cache.max_bytes),
        )
        assert step_seconds(service) == 0
        done = threading.Event()
        job = Job((1, 2, 3), SamplingParams(max_tokens=3, ignore_eos=True))
        scheduler.submit(job, lambda update: done.set() if update.last else None)
        assert done.wait(60)
        scheduler.close()
        assert scheduler.snapshot().totals.generated_tokens == 3
        assert step_seconds(service) >= 1


def step_seconds(service):
    """Observations of the time of a step's pass."""
    families = text_string_to_metric_families(service.metrics.text().decode())
    samples = [sample for family in families for sample in family.samples]
    return sum(s.value for s in samples if s.name.endswith("_count") and s.labels.get("phase") == "forward")
