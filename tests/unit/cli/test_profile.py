"""`medusa profile`: logs and servers in, lengths and a suggestion out."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cli_fakes import FakeLLM, Invoke
from medusakit.bench import prometheus
from medusakit.bench.prometheus import Histogram, Metrics
from medusakit.cli import named


@pytest.fixture
def log(tmp_path: Path) -> str:
    file = tmp_path / "requests.jsonl"
    lines = [{"prompt_tokens": 100, "output_tokens": n, "timestamp": n, "duration_s": 2.0} for n in range(1, 101)]
    file.write_text("\n".join(map(json.dumps, lines)))
    return str(file)


def test_a_log(invoke: Invoke, log: str) -> None:
    outcome = invoke("profile", log, "--lengths-only")
    assert outcome.code == 0, outcome.err
    assert "100 requests" in outcome.out and "1 requests a second" in outcome.out
    assert "suggestion: max_context 256, max_rows 2" in outcome.out
    document = json.loads(invoke("profile", log, log, "--lengths-only", "--json", "-").out)
    assert document["output_tokens"]["p95"] == 95 and document["prompt_tokens"]["p50"] == 100
    assert document["requests"] == 200 and document["suggestion"]["budget"] is None


def test_the_model_sets_a_limit(invoke: Invoke, llm: FakeLLM, log: str) -> None:
    assert "max_context 64" in invoke("profile", log).out  # what the scripted model holds


def test_a_server(invoke: Invoke, monkeypatch: pytest.MonkeyPatch) -> None:
    histogram = Histogram({64.0: 10.0, float("inf"): 10.0}, 300.0)
    asked: list[str] = []
    monkeypatch.setattr(
        prometheus, "fetch_metrics", lambda url: asked.append(url) or Metrics(histogram, histogram, None, None)
    )
    outcome = invoke("profile", "--url", "http://host:8000", "--lengths-only")
    assert outcome.code == 0 and asked == ["http://host:8000"]
    assert "10 requests" in outcome.out and "the load is not known" in outcome.err


def test_what_to_look_at_must_be_said_once(invoke: Invoke, log: str) -> None:
    assert invoke("profile").code == 2
    assert invoke("profile", log, "--url", "http://host").code == 2


def test_a_broken_line_has_its_place(invoke: Invoke, tmp_path: Path) -> None:
    file = tmp_path / "bad.jsonl"
    file.write_text('{"prompt_tokens": 1, "output_tokens": 1}\n{"prompt_tokens": 1}\n')
    outcome = invoke("profile", str(file))
    assert outcome.code == 2
    assert f"{file}, line 2 has no output_tokens" in outcome.err and "Traceback" not in outcome.err


def test_profiler_is_profile(
    invoke: Invoke, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["medusa-profiler", "--help"])
    assert named.profiler() == 0
    assert capsys.readouterr().out.startswith("Usage: medusa profile")
