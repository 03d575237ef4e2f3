"""Requests where drafts are wrong."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from bench_fakes import headed_llm, toy_llm
from medusakit.bench.adversarial import CASES, HOT, LENGTHS, make_cases
from medusakit.bench.offline import OfflineConfig, make_modes, run_offline
from medusakit.errors import UsageError
from medusakit.settings import SamplingParams

PARAMS = SamplingParams(max_tokens=12, seed=3)
LONG = 4096  # letters of the longest MT-Bench question


def test_random_prompts_are_uniform_ids_of_several_lengths(tmp_path: Path) -> None:
    llm = headed_llm(tmp_path / "heads", context=LONG)
    cases = [case for case in make_cases(llm, PARAMS, threads=1) if case.category == "random-ids"]
    assert [len(case.ids) for case in cases] == [*LENGTHS, *LENGTHS]
    ids = np.concatenate([case.ids for case in cases])
    assert set(ids) == set(range(50)) and Counter(ids).most_common(1)[0][1] < 3 * len(ids) / 50
    assert all(case.params.ignore_eos and case.params.temperature == 0 for case in cases)
    again = make_cases(llm, PARAMS, threads=1)
    assert [case.ids for case in again[:CASES]] == [case.ids for case in cases]


def test_hot_questions_and_heads_that_know_nothing(tmp_path: Path) -> None:
    cases = make_cases(headed_llm(tmp_path / "heads", context=LONG), PARAMS, threads=1)
    assert Counter(case.category for case in cases) == dict.fromkeys(
        ("random-ids", "high-temperature", "random-heads"), CASES
    )
    hot = [case.params for case in cases if case.category == "high-temperature"]
    assert {params.temperature for params in hot} == {HOT}
    assert [params.seed for params in hot] == list(range(3, 3 + CASES))
    assert [case.mode is not None for case in cases] == [False] * 2 * CASES + [True] * CASES


def test_a_limit_is_spread_and_what_does_not_fit_is_left_out(tmp_path: Path) -> None:
    llm = headed_llm(tmp_path / "heads", context=LONG)
    assert Counter(case.category for case in make_cases(llm, PARAMS, limit=6, threads=1)).most_common() == [
        ("random-ids", 2),
        ("high-temperature", 2),
        ("random-heads", 2),
    ]
    small = toy_llm(max_context=32)  # no heads here, and MT-Bench's questions are longer
    assert [len(case.ids) for case in make_cases(small, PARAMS)] == [16, 16]


def test_the_document_is_the_offline_one(tmp_path: Path) -> None:
    llm = headed_llm(tmp_path / "heads", context=LONG)
    config = OfflineConfig("adversarial", limit=3, params=PARAMS, threads=1)
    seen: list[int] = []
    document = run_offline(llm, config, lambda progress: seen.append(progress.done))
    ratio = document["speedup"]["medusa/plain"]
    assert ratio["by_category"].keys() == {"random-ids", "high-temperature", "random-heads"}
    assert document["identical"]["medusa==plain"]["equal"] == 3
    assert document["modes"]["plain"]["tokens"] == document["modes"]["medusa"]["tokens"] == 3 * 11
    assert document["modes"]["medusa"]["nodes_per_step"] > 2  # it did draft
    assert seen == [1, 2, 3]


def test_it_has_no_part_for_transformers() -> None:
    with pytest.raises(UsageError, match="compares medusa with plain"):
        make_modes(toy_llm(), OfflineConfig("adversarial", modes=("plain", "hf")))
