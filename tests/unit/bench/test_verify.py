"""`medusa verify` passes what is exact and fails what is not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bench_fakes import make_llm, toy_llm
from medusakit.bench.verify import VerifyConfig, VerifyProgress, _passed, run_verify
from medusakit.errors import UsageError
from medusakit.llm import LLM
from medusakit.runtimes.reference import random_reference

ISSUE_KEYS = {"nodes", "kl_max", "logit_diff_max", "greedy", "sample", "flips_per_1000"}


@pytest.fixture
def config(tmp_path: Path) -> VerifyConfig:
    file = tmp_path / "suite.jsonl"
    file.write_text("\n".join(json.dumps({"turns": turns}) for turns in (["abc", "de"], ["fgh"])))
    return VerifyConfig(str(file), limit=None, sampled=1, nodes=60, max_tokens=24, formats=("f32",))


def test_an_honest_model_passes(config: VerifyConfig) -> None:
    seen: list[VerifyProgress] = []
    document = run_verify(lambda weights: toy_llm(right=0.8), config, seen.append)
    found = document["formats"]["f32"]
    assert document["passed"] and found["passed"]
    assert found.keys() >= ISSUE_KEYS
    assert found["nodes"] >= 60 and found["deep_nodes"] > 0 and found["later_siblings"] > 0
    assert found["kl_max"] <= 1e-8 and found["flips_per_1000"] == 0.0
    assert (found["greedy"]["turns"], found["greedy"]["equal"]) == (3, 3)
    assert (found["sample"]["turns"], found["sample"]["equal"]) == (2, 2)
    assert {(step.proof, step.total) for step in seen} == {("nodes", 60), ("greedy", 3), ("sample", 2)}
    json.dumps(document, allow_nan=False)


@pytest.mark.parametrize("leak", [(2, 1), (4, 3), (5, 2)])
def test_a_leak_of_one_node_fails(config: VerifyConfig, leak: tuple[int, int]) -> None:
    document = run_verify(lambda weights: toy_llm(right=0.8, leak=leak), config)
    assert not document["passed"]
    assert document["formats"]["f32"]["kl_max"] > 1e-8


def test_every_format_is_loaded_and_closed(config: VerifyConfig) -> None:
    loaded: list[tuple[str, LLM]] = []

    def load(weights: str) -> LLM:
        assert all(llm.runtime.closed for _, llm in loaded), "two models in memory at once"  # type: ignore[attr-defined]
        llm = toy_llm()
        llm.runtime.closed = False  # type: ignore[attr-defined]
        llm.runtime.close = lambda: setattr(llm.runtime, "closed", True)  # type: ignore[method-assign]
        loaded.append((weights, llm))
        return llm

    run_verify(load, VerifyConfig(config.suite, None, 0, 8, 4, formats=("f32", "int8")))
    assert [weights for weights, _ in loaded] == ["f32", "int8"]


def test_nothing_to_verify_without_heads(config: VerifyConfig) -> None:
    with pytest.raises(UsageError, match="no heads"):
        run_verify(lambda weights: make_llm(random_reference(0, 23)), config)


def found(exact: str = "bitwise-ties", **changes: Any) -> dict[str, Any]:
    proof = {"turns": 100, "equal": 100, "tied": 0, "different": 0}
    return {"nodes": 400, "kl_max": 1e-9, "greedy": proof, "sample": proof, "exact": exact} | changes


def proof(tied: int = 0, different: int = 0) -> dict[str, int]:
    return {"turns": 100, "equal": 100 - tied - different, "tied": tied, "different": different}


@pytest.mark.parametrize(
    ("case", "passed"),
    [
        (found(), True),
        (found(nodes=0), False),
        (found(kl_max=2e-8), False),
        (found(greedy=proof(different=1)), False),
        (found(sample=proof(different=1)), False),
        (found(greedy=proof(tied=1), sample=proof(tied=1)), True),  # 2 of 200 turns: 1 %
        (found(greedy=proof(tied=2), sample=proof(tied=1)), False),
        (found("numerical-ties", kl_max=0.1, greedy=proof(tied=9)), True),
        (found("numerical-ties", kl_max=0.1, greedy=proof(different=1)), False),
    ],
)
def test_what_each_exactness_promises(case: dict[str, Any], passed: bool) -> None:
    assert _passed(case) is passed
