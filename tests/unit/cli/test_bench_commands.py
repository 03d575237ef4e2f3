"""`medusa bench` and `medusa verify`: what reaches the bench, and how its documents are shown."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cli_fakes import FakeLLM, Invoke
from medusakit.bench import hardware, offline, verify
from medusakit.cli.bench import parse_formats
from medusakit.errors import UsageError

MODE = {"tokens": 5, "tokens_per_s": 2.0, "tau": 1.5, "nodes_per_step": 8.0, "accepted_by_depth": []}
REPORT: dict[str, Any] = {
    "modes": {"plain": MODE | {"time_split": {"forward": 1.0, "draft": 0.0, "other": 0.0}}},
    "speedup": {},
    "identical": {},
    "weights": "f32",
    "lossless": True,
    "model": {"predicted": None},
}
SPEEDUP = {"medusa/plain": {"ratio": 1.4, "ci95": [1.3, 1.5], "by_category": {"coding": 1.6, "math": 1.2}}}


def test_offline_hands_its_options_over(invoke: Invoke, llm: FakeLLM, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[str, Any] = {}

    def run_offline(model: object, config: offline.OfflineConfig, on_progress: Callable[..., None]) -> dict[str, Any]:
        seen.update(model=model, config=config)
        on_progress(offline.OfflineProgress(1, 2, {"plain": 2.0}))
        return REPORT

    monkeypatch.setattr(offline, "run_offline", run_offline)
    words = ("--suite", "mt-bench", "--limit", "3", "--modes", "plain,hf", "--seed", "5", "--threads", "2")
    outcome = invoke("bench", "offline", *words)
    config = seen["config"]
    assert (config.suite, config.limit, config.modes, config.seed, config.threads) == (
        "mt-bench",
        3,
        ("plain", "hf"),
        5,
        2,
    )
    assert (config.params.max_tokens, config.params.seed) == (256, 5)
    assert "plain 2.0 tok/s" in outcome.err
    assert "tau" in outcome.out


def test_offline_refuses_a_system_message(invoke: Invoke, llm: FakeLLM) -> None:
    assert invoke("bench", "offline", "-s", "be brief").code == 2


def test_hardware_shows_each_format(invoke: Invoke, monkeypatch: pytest.MonkeyPatch) -> None:
    document = {
        "read_gb_s": 27.0, "copy_gb_s": 20.0, "gemm_gflop_s": 145.0, "int8_gop_s": 300.0,
        "step_ms": {"f32": {"1": 22.0, "8": 33.0}}, "limit_ms": {"f32": {"1": 20.0, "8": 22.0}},
        "ratio": {"f32": {"1": 1.1, "8": 1.5}},
    }  # fmt: skip
    seen: dict[str, Any] = {}

    def run_hardware(load: object, **options: Any) -> dict[str, Any]:
        seen.update(options)
        return document

    monkeypatch.setattr(hardware, "run_hardware", run_hardware)
    outcome = invoke("bench", "hardware", "--formats", "f32", "--context", "64")
    assert (seen["formats"], seen["context"]) == (("f32",), 64)
    assert "27.0 GB/s" in outcome.out and "1.50" in outcome.out
    assert json.loads(invoke("bench", "hardware", "--json", "-").out) == document


def test_plots_are_drawn_where_asked(
    invoke: Invoke, llm: FakeLLM, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(offline, "run_offline", lambda *arguments: REPORT | {"speedup": SPEEDUP})
    outcome = invoke("bench", "offline", "--plots", str(tmp_path / "plots"))
    assert outcome.code == 0
    (picture,) = (tmp_path / "plots").iterdir()
    assert picture.suffix == ".svg"
    assert str(picture) in outcome.err


def test_formats_are_checked() -> None:
    assert parse_formats("f32, int4") == ("f32", "int4")
    with pytest.raises(UsageError, match="fp16"):
        parse_formats("fp16")


def audit(passed: bool) -> dict[str, Any]:
    first = {"where": "81 turn 1", "position": 4, "left_id": 1, "right_id": 2, "gap": 0.5, "tied": False}
    clean: dict[str, Any] = {"turns": 4, "equal": 4, "tied": 0, "different": 0, "first_differences": []}
    broken = clean | {"equal": 3, "different": 1, "first_differences": [first]}
    found = {
        "nodes": 400, "kl_max": 1e-10, "logit_diff_max": 6e-5, "greedy": clean if passed else broken, "sample": clean,
        "flips_per_1000": 0.0, "exact": "bitwise-ties", "passed": passed,
    }  # fmt: skip
    return {"formats": {"f32": found}, "passed": passed}


@pytest.mark.parametrize("passed", [True, False])
def test_verify_shows_proofs_and_exits_by_the_verdict(
    invoke: Invoke, monkeypatch: pytest.MonkeyPatch, passed: bool
) -> None:
    seen: dict[str, Any] = {}

    def run_verify(load: object, config: verify.VerifyConfig, on_progress: Callable[..., None]) -> dict[str, Any]:
        seen["config"] = config
        on_progress(verify.VerifyProgress("f32", "nodes", 3, 400))
        return audit(passed)

    monkeypatch.setattr(verify, "run_verify", run_verify)
    outcome = invoke("verify", "--formats", "f32", "--limit", "2", "--sampled", "1", "--nodes", "400", "-n", "16")
    assert outcome.code == (0 if passed else 4)
    config = seen["config"]
    assert (config.formats, config.limit, config.sampled, config.nodes, config.max_tokens) == (("f32",), 2, 1, 400, 16)
    assert ("every format keeps what it promises" in outcome.out) is passed
    assert ("81 turn 1, token 5: DIFFERENT" in outcome.out) is not passed
