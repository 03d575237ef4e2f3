"""`medusa compare`: interleaving, the columns, the document."""

from __future__ import annotations

import json

import pytest

from cli_fakes import FakeLLM, Invoke
from medusakit.cli import report
from medusakit.cli.ui import Ui


@pytest.fixture
def heads(llm: FakeLLM) -> FakeLLM:
    llm.heads = True
    return llm


def test_document_has_the_keys_of_the_bench(invoke: Invoke, heads: FakeLLM) -> None:
    document = json.loads(invoke("compare", "one", "two", "--json", "-").out)
    keys = {"modes", "speedup", "identical", "weights", "config", "machine", "versions", "model", "seed"}
    assert keys <= set(document)
    assert set(document["modes"]) == {"plain", "medusa"}
    same = document["identical"]["medusa==plain"]
    assert (same["turns"], same["equal"], same["tied"], same["first_differences"]) == (2, 2, 0, [])
    assert document["speedup"]["medusa/plain"]["ratio"] == pytest.approx(1.0)
    assert document["config"]["prompts"] == ["one", "two"]


def test_runs_are_interleaved_and_the_order_alternates(invoke: Invoke, heads: FakeLLM) -> None:
    invoke("compare", "one", "two", "--repeat", "2")
    assert [(call["prompt"], call["speculation"]) for call in heads.calls] == [
        ("one", False), ("one", True), ("two", True), ("two", False),
        ("one", False), ("one", True), ("two", True), ("two", False),
    ]  # fmt: skip
    assert {call["params"].seed for call in heads.calls} == {0}
    assert {call["params"].max_tokens for call in heads.calls} == {128}


def test_columns_and_verdict(invoke: Invoke, heads: FakeLLM) -> None:
    outcome = invoke("compare", "one", "-n", "5")
    assert "one two three four five" in outcome.out
    assert "medusa/plain 1.00x with f32 weights" in outcome.out
    assert "1 of 1 answers have the same tokens" in outcome.out
    assert "without a loop" not in outcome.out  # none has one: it would be the same figure again
    assert heads.calls[0]["params"].max_tokens == 5


def test_no_prompt_names_this_command(invoke: Invoke, heads: FakeLLM) -> None:
    outcome = invoke("compare")
    assert outcome.code == 2
    assert 'try: medusa compare "' in outcome.err


def test_without_heads_there_is_nothing_to_compare(invoke: Invoke, llm: FakeLLM) -> None:
    outcome = invoke("compare", "one")
    assert outcome.code == 3
    assert "medusa train all" in outcome.err
    assert not llm.calls


def equality(tied: bool, gap: float) -> dict[str, object]:
    first = {"where": "q7 turn 1", "position": 11, "left_id": 1, "right_id": 2, "gap": gap, "tied": tied}
    return {"turns": 4, "equal": 3, "tied": int(tied), "different": int(not tied), "first_differences": [first]}


@pytest.mark.parametrize(
    ("tied", "gap", "parts"),
    [
        (True, 2e-4, ("3 of 4 answers have the same tokens, 1 part at a tie", "token 12: tie, scores 2.0e-04 apart")),
        (False, 0.4, ("3 of 4 answers have the same tokens", "token 12: DIFFERENT, scores 4.0e-01 apart")),
        (False, float("inf"), ("DIFFERENT, one answer ends",)),
    ],
)
def test_differences_are_listed(
    capsys: pytest.CaptureFixture[str], tied: bool, gap: float, parts: tuple[str, ...]
) -> None:
    mode = {"tokens": 5, "tokens_per_s": 2.0, "tau": 1.5, "nodes_per_step": 8.0, "accepted_by_depth": [0.5, 0.25]}
    mode["time_split"] = {"forward": 0.9, "draft": 0.08, "other": 0.02}
    document = {
        "modes": {"plain": mode, "medusa": mode},
        "speedup": {"medusa/plain": {"ratio": 1.4, "ci95": [1.3, 1.5], "by_category": {"coding": 1.6, "math": 1.2}}},
        "identical": {"medusa==plain": equality(tied, gap)},
        "weights": "f32",
        "lossless": True,
        "model": {"predicted": {"tau": 1.6, "speedup": 1.45}},
    }
    report.show_comparison(Ui(), document)
    shown = capsys.readouterr().out
    assert "tokens, tok/s and tau: without the first token of each answer" in shown
    for part in (*parts, "1.40x (95 % interval 1.30 to 1.50)", "1.60x", "50/25 %", "expected from calibration"):
        assert part in shown
