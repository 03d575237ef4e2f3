"""What is compared: which heads, with how many nodes, and what is said of their size."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bench_fakes import headed_llm, make_llm, toy_llm
from medusakit.bench import candidates
from medusakit.bench.answers import ControllerMode
from medusakit.bench.candidates import all_candidates, first_of_families, trained
from medusakit.drafters.draft_model.drafter import DraftModelDrafter
from medusakit.engine.controller import FixedController, GuardedController
from medusakit.errors import ArtifactMismatchError
from medusakit.llm import LLM
from medusakit.runtimes.reference import random_reference
from medusakit.settings import SamplingParams
from medusakit.tree.cost import StepCost

PARAMS = SamplingParams(max_tokens=20, ignore_eos=True)
STEEP = StepCost.single({1: 0.001, 2: 1.0, 64: 9.0})


@pytest.fixture
def llm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LLM:
    found = headed_llm(tmp_path / "heads")
    monkeypatch.setattr(candidates, "fitting_heads", lambda *_: iter([(tmp_path / "heads", "hydra")]))
    return found


def nodes_per_step(llm: LLM, candidate: Any) -> float:
    made = ControllerMode("x", llm, candidate.controller).answer([1, 2, 3], PARAMS)
    return made.nodes / made.steps


def test_heads_folders_and_drafters_without_heads(llm: LLM, tmp_path: Path) -> None:
    found = {one.name: one for one in all_candidates(llm.parts, [str(tmp_path / "heads")], budget=4, threads=1)}
    assert list(found) == ["hydra", str(tmp_path / "heads"), "suffix", "recycling", "hybrid"]
    hydra, suffix = found["hydra"], found["suffix"]
    assert hydra.num_params == 3 * 48 + 48 * 32 + 16 * 24  # depth, w_in, w_out of inner width 24
    assert hydra.num_bytes == (tmp_path / "heads" / "drafter.safetensors").stat().st_size
    assert (suffix.family, suffix.num_params, suffix.num_bytes) == ("suffix", 0, 0)
    assert 3 < nodes_per_step(llm, hydra) <= 4  # the last step of an answer has less room
    assert nodes_per_step(llm, suffix) <= 4


def test_a_second_model_stands_beside_the_heads_and_what_is_together_has_them(llm: LLM) -> None:
    twin = DraftModelDrafter(random_reference(5, llm.runtime.spec.vocab_size), num_params=7, num_bytes=28)
    loaded = replace(llm.parts, artifact=None, second=twin)  # as --drafter draft_model loads
    found = {one.name: one for one in all_candidates(loaded, budget=4, threads=1)}
    assert list(found) == ["hydra", "draft_model", "suffix", "recycling", "hybrid"]
    assert (found["draft_model"].num_params, found["draft_model"].num_bytes) == (7, 28)
    made = ControllerMode("x", llm, found["draft_model"].controller).answer([1, 2, 3], PARAMS)
    assert made.steps < 10  # the twin of the model guesses what it says
    assert found["hybrid"].num_params == found["hydra"].num_params > 0


def test_without_a_budget_heads_take_what_pays(llm: LLM) -> None:
    artifact = llm.parts.artifact
    assert artifact is not None
    assert isinstance(trained(llm.parts, artifact, name="x", threads=1).controller, GuardedController)
    assert type(trained(llm.parts, artifact, name="x", budget=4, threads=1).controller) is FixedController
    dear = replace(llm.parts, cost=STEEP)
    assert nodes_per_step(llm, trained(dear, artifact, name="x", threads=1)) == 1
    withheld = replace(llm.parts, withheld=True)
    assert nodes_per_step(llm, trained(withheld, artifact, name="x", threads=1)) == 1


def test_heads_of_another_model_are_refused(llm: LLM, tmp_path: Path) -> None:
    other = make_llm(random_reference(0, 50))
    with pytest.raises(ArtifactMismatchError):
        list(all_candidates(replace(other.parts, cost=STEEP), [str(tmp_path / "heads")], budget=4))


def test_the_first_heads_of_a_family_stand_for_it() -> None:
    found = [(Path("a"), "hydra"), (Path("b"), "oracle"), (Path("c"), "medusa"), (Path("d"), "hydra")]
    assert sorted(first_of_families(iter(found))) == [(Path("a"), "hydra"), (Path("c"), "medusa")]


def test_the_cost_of_a_pass_is_measured_where_it_is_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(candidates, "remembered_cost", lambda *_: StepCost.single({1: 0.5}))
    parts = candidates.with_cost(toy_llm().parts, None)
    assert parts.cost is not None and parts.cost.seconds(1) == 0.5
