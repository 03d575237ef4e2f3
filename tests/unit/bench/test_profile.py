"""From requests to lengths, load and a suggestion."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from bench_fakes import headed_llm, toy_llm
from medusakit.bench.profile import document, load_of, profile_metrics, profile_requests, rows_for, suggest
from medusakit.bench.prometheus import Histogram, Metrics
from medusakit.bench.requests import Request
from medusakit.llm import LLM
from medusakit.tree.cost import StepCost


def test_lengths_are_values_that_occurred() -> None:
    found = profile_requests([Request(10 * n, n) for n in range(1, 101)])
    assert (found.prompt_tokens.p50, found.prompt_tokens.p95, found.prompt_tokens.most) == (500, 950, 1000)
    assert (found.output_tokens.p50, found.output_tokens.p95, found.output_tokens.mean) == (50, 95, 50.5)
    assert (found.requests, found.longest) == (100, 1100)


def test_load_needs_times() -> None:
    assert load_of([Request(1, 1), Request(1, 1)]).rate_per_s is None
    assert load_of([Request(1, 1, 5.0)]).rate_per_s is None
    assert load_of([Request(1, 1, 0.0), Request(1, 1)]).rate_per_s is None
    rate = load_of([Request(1, 1, at) for at in (4.0, 0.0, 2.0)])
    assert (rate.rate_per_s, rate.concurrency, rate.peak) == (0.5, None, None)


def test_concurrency_is_time_in_flight_over_time() -> None:
    found = load_of([Request(1, 1, 0.0, 4.0), Request(1, 1, 2.0, 4.0), Request(1, 1, 6.0, 2.0)])
    assert (found.rate_per_s, found.concurrency, found.peak) == (2 / 6, 10 / 8, 2)
    assert load_of([Request(1, 1, 0.0, 1.0), Request(1, 1, 1.0, 1.0)]).peak == 1  # one ends where the other starts


@pytest.mark.parametrize("mean", [0.3, 1.0, 7.5, 60.0, 400.0])
def test_rows_cover_95_percent_of_the_time(mean: float) -> None:
    draws = np.random.default_rng(0).poisson(mean, 200_000)
    rows = rows_for(mean)
    assert (draws <= rows).mean() > 0.945
    assert (draws <= rows - 2).mean() < 0.955


def test_a_servers_histograms() -> None:
    prompt = Histogram({10.0: 50.0, 100.0: 100.0, math.inf: 100.0}, 4000.0)
    output = Histogram({64.0: 100.0, math.inf: 100.0}, 3000.0)
    found = profile_metrics(Metrics(prompt, output, 2.0, 1000.0), now_s=1050.0)
    assert (found.requests, found.longest) == (100, 164.0)
    assert (found.load.rate_per_s, found.load.concurrency) == (2.0, 2.0)
    assert (found.prompt_tokens.p50, found.prompt_tokens.mean, found.output_tokens.p50) == (10.0, 40.0, 32.0)
    open_end = profile_metrics(Metrics(prompt, Histogram({math.inf: 5.0}, 9.0), None, None), now_s=0.0)
    assert (open_end.longest, open_end.load.rate_per_s, open_end.load.concurrency) == (math.inf, None, None)
    assert suggest(open_end, None)["max_context"] is None
    assert suggest(open_end, toy_llm(max_context=96))["max_context"] == 96


def test_a_suggestion_without_a_model_is_about_room() -> None:
    timed = profile_requests([Request(100, 60, 0.0, 4.0), Request(200, 80, 2.0, 4.0)])
    assert suggest(timed, None) == {"max_context": 512, "max_rows": 2, "budget": None, "by_rows": []}
    lengths = profile_requests([Request(100, 60)])
    assert suggest(lengths, None) == {"max_context": 256, "max_rows": None, "budget": None, "by_rows": []}
    assert suggest(lengths, toy_llm(max_context=96))["max_context"] == 96


@pytest.fixture
def llm(tmp_path: Path) -> LLM:
    """Passes of up to 8 nodes cost the same, more cost in proportion: at 8 rows no tree pays."""
    found = headed_llm(tmp_path / "heads")
    return LLM(replace(found.parts, cost=StepCost.single({1: 0.1, 8: 0.1, 16: 0.2, 32: 0.4, 64: 0.8})))


def test_the_budget_falls_with_the_rows(llm: LLM) -> None:
    one = suggest(profile_requests([Request(9, 9)]), llm)
    assert (one["budget"], one["by_rows"][0]["rows"]) == (5, 1)
    assert one["by_rows"][0]["speedup"] == pytest.approx(2.1, rel=0.05)  # 1 + .5 + .3 + .2 + .1
    crowd = profile_requests([Request(9, 9, at / 4, 2.0) for at in range(400)])
    many = suggest(crowd, llm)
    assert many["max_rows"] == 8 and round(crowd.load.concurrency or 0) == 8
    assert many["budget"] == 1
    assert [best["rows"] for best in many["by_rows"]] == [1, 8]


def test_concurrency_from_a_rate_and_what_an_answer_takes(llm: LLM) -> None:
    profile = profile_requests([Request(9, 42, at) for at in (0.0, 1.0, 2.0)])  # one a second, 42 tokens each
    found = suggest(profile, llm)
    assert found["concurrency_estimated"] == pytest.approx(42 / 2.1 * 0.1, rel=0.05)
    assert found["max_rows"] == rows_for(found["concurrency_estimated"])
    plain = LLM(replace(llm.parts, artifact=None))
    assert suggest(profile, plain)["concurrency_estimated"] == pytest.approx(4.2, rel=0.05)
    assert suggest(profile, plain)["budget"] is None


def test_the_document_has_the_issues_keys(llm: LLM) -> None:
    profile = profile_requests([Request(100, 60)])
    found = document(profile, suggest(profile, llm), ["requests.jsonl"])
    assert (found["output_tokens"]["p50"], found["prompt_tokens"]["p95"]) == (60, 100)
    assert found["suggestion"]["budget"] == 5 and found["source"] == ["requests.jsonl"]
    json.dumps(found, allow_nan=False)
