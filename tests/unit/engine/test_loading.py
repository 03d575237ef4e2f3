"""What is loaded where no heads are: the drafter, its trees and budget, and which words name it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from engine_fakes import VOCAB, LetterTokenizer
from medusakit.drafters.draft_model.drafter import DraftModelDrafter
from medusakit.engine import choices, loading, remembered
from medusakit.engine.controller import FixedController, GuardedController, PlainController
from medusakit.engine.engine import Engine
from medusakit.engine.loading import Loaded, other_drafting
from medusakit.engine.plan import PLAIN_PLAN
from medusakit.engine.speculation import MAX_BUDGET, heads_beam
from medusakit.engine.wishes import Wishes
from medusakit.errors import UsageError
from medusakit.llm import LLM
from medusakit.models.resolve import ResolvedModel
from medusakit.runtimes.base import Capabilities
from medusakit.runtimes.reference import random_reference
from medusakit.runtimes.reference_source import random_source
from medusakit.settings import SamplingParams
from medusakit.tree.cost import StepCost
from medusakit.tree.policy import DynamicPolicy, StaticPolicy

FLAT = {1: 1.0, 64: 1.0}  # more nodes cost nothing
STEEP = {1: 1.0, 2: 50.0, 64: 99.0}  # nothing pays
Load = Callable[..., Loaded]


@pytest.fixture
def load(monkeypatch: pytest.MonkeyPatch) -> Load:
    """The parts of a small random model that no heads fit."""

    def call(*, cost: dict[int, float] = FLAT, exact: str = "bitwise-ties", **arguments: Any) -> Loaded:
        runtime = random_reference(0, VOCAB, context_length=64)
        runtime._capabilities = Capabilities("f32", exact, 8, 64)
        facts: dict[str, Any] = {
            "resolve": ResolvedModel("toy", Path("toy.gguf"), "gguf"),
            "open_weights": random_source(0, VOCAB),
            "load_tokenizer": LetterTokenizer(),
            "load_onnx": runtime,
            "remembered_cost": StepCost.single(cost),
            "find_heads": None,
        }
        for name, fact in facts.items():
            monkeypatch.setattr(loading, name, lambda *_, fact=fact, **__: fact)
        return LLM.load("toy", **arguments).parts

    return call


def answer(parts: Loaded, max_tokens: int = 40) -> Any:
    engine = Engine(parts.runtime, parts.tokenizer, parts.speculation.controller)
    session = engine.start([1, 2, 3], SamplingParams(max_tokens=max_tokens))
    for _ in engine.run(session):
        pass
    engine.finish(session)
    return session.result()


def unguarded(parts: Loaded) -> Loaded:
    """The same plan at every step: what the guard does depends on real time."""
    return replace(parts, speculation=replace(parts.speculation, controller=FixedController(plan(parts))))


def plan(parts: Loaded) -> Any:
    return parts.speculation.controller.plan([])


def test_a_model_without_heads_is_drafted_by_what_needs_none(load: Load) -> None:
    parts = load()
    found = parts.speculation
    assert parts.artifact is None and found.drafter is not None
    assert (found.drafter.name, found.max_nodes, found.topology.num_nodes) == ("hybrid", MAX_BUDGET, 1)
    assert isinstance(parts.speculation.controller, GuardedController)
    result = answer(unguarded(parts))
    assert result.stats.tau > 1.2
    assert result.token_ids == answer(load(heads="none")).token_ids


def test_trees_grow_by_what_is_measured_while_the_model_lives(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    """A table of a busy machine said that nothing pays."""
    parts = load(cost=STEEP)
    held, watch = unguarded(parts), parts.cost_watch()
    assert watch is not None and answer(held).stats.num_nodes == answer(held).stats.num_steps
    monkeypatch.setattr(remembered, "remembered_cost", lambda *_: StepCost.single(FLAT))
    watch()
    assert answer(held).stats.tau == 1.0  # looked too lately
    watch.looked -= remembered.FRESH_S
    watch()
    assert answer(held).stats.tau > 1.2


def test_plain_decoding_has_no_table_to_watch(load: Load) -> None:
    parts = load()
    assert parts.cost_watch() is not None and replace(parts, cost=None).cost_watch() is None


@pytest.mark.parametrize("name", ["suffix", "recycling"])
@pytest.mark.parametrize("heads", ["auto", "none"])
def test_a_drafter_without_heads_can_be_asked_for(load: Load, name: str, heads: str) -> None:
    parts = load(heads=heads, drafter=name)
    assert parts.speculation.drafter is not None and parts.speculation.drafter.name == name
    assert isinstance(plan(parts).policy, DynamicPolicy)


def test_a_second_model_can_draft(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    """The model itself as its own draft model: everything is accepted. It is closed with the rest."""
    closed = []
    second = DraftModelDrafter(random_reference(0, VOCAB, context_length=64))
    monkeypatch.setattr(loading, "load_draft_model", lambda name, *_, **__: second if name == "twin" else None)
    monkeypatch.setattr(DraftModelDrafter, "close", lambda self: closed.append(self))
    parts = load(drafter="draft_model", draft_model="twin")
    drafter = parts.speculation.drafter
    assert parts.second is second and drafter is not None and drafter.name == "draft_model"
    result = answer(parts)
    assert result.stats.tau > 2.5
    assert result.token_ids == answer(load(heads="none")).token_ids
    LLM(parts).close()
    assert closed == [second]


@pytest.mark.parametrize("wanted", [{"drafter": "draft_model"}, {"draft_model": "twin"}])
def test_a_draft_model_and_its_name_belong_together(load: Load, wanted: dict[str, str]) -> None:
    with pytest.raises(UsageError, match="one needs the other") as error:
        load(**wanted)
    assert error.value.hint is not None and "--draft-model MODEL" in error.value.hint


def test_none_means_plain(load: Load) -> None:
    parts = load(heads="none")
    assert parts.speculation.drafter is None and isinstance(parts.speculation.controller, PlainController)


def test_a_budget_is_a_limit_and_the_rest_is_cost(load: Load) -> None:
    given = answer(load(budget=3, cost=STEEP)).stats
    assert 1 < given.nodes_per_step <= 3
    free = answer(unguarded(load(cost=FLAT))).stats
    assert free.nodes_per_step > given.nodes_per_step
    plain = answer(load(cost=STEEP)).stats
    assert (plain.nodes_per_step, plain.tau) == (1.0, 1.0)
    assert plan(load(budget=1)) is PLAIN_PLAN
    assert type(load(budget=3).speculation.controller) is FixedController  # a given budget is not second-guessed
    assert isinstance(load(budget=3, breaker_rho=0.85).speculation.controller, GuardedController)


def test_a_format_whose_trees_round_otherwise_decodes_plainly_unless_a_budget_is_given(load: Load) -> None:
    parts = load(exact="numerical-ties")
    assert parts.withheld and plan(parts) is PLAIN_PLAN and parts.speculation.max_nodes == 1
    parts = load(exact="numerical-ties", budget=4)
    assert not parts.withheld and plan(parts).budget == 4


def test_a_dense_tree_is_taken_as_it_is(load: Load) -> None:
    parts = load(tree="2x3", budget=5)
    assert isinstance(plan(parts).policy, StaticPolicy)
    assert (parts.speculation.topology.num_nodes, parts.speculation.max_nodes) == (5, None)
    assert answer(parts).stats.num_steps > 0
    with pytest.raises(UsageError, match="9 deep, but recycling guesses 8 tokens ahead"):
        load(drafter="recycling", tree="9x1")


def test_words_that_name_no_drafter(load: Load) -> None:
    known = "'sufix' is not known; with heads: .*; without: suffix, recycling, draft_model; together: hybrid"
    with pytest.raises(UsageError, match=known) as error:
        load(drafter="sufix")
    assert error.value.hint == "--drafter suffix"
    with pytest.raises(UsageError, match=r"drafter suffix needs no heads, but \./heads was given"):
        load(drafter="suffix", heads="./heads")


@pytest.mark.parametrize(
    ("wish", "message"),
    [
        ({"budget": 0}, "budget is 0; expected a number of nodes from 1 to 256"),
        ({"budget": 257}, "budget is 257"),
        ({"budget": 2.5}, "budget is 2.5"),
        ({"max_leaves": 0}, "max_leaves is 0"),
        ({"breaker_rho": 1.5}, "breaker_rho is 1.5; expected a number from 0 to 1"),
    ],
)
def test_numbers_out_of_range(load: Load, wish: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message) as error:
        load(**wish)
    assert error.value.hint
    assert len(heads_beam(5, 10_000).widths) == 5  # who does not go through `check` gets the widest


@pytest.mark.parametrize(
    ("wish", "message", "hint"),
    [
        ({"runtime": "onxx"}, "runtime 'onxx' is not known", "--runtime onnx"),
        ({"device_map": "cuda:0"}, "device map 'cuda:0' needs the torch runtime", "--runtime torch"),
    ],
)
def test_runtimes_that_cannot_be(
    wish: dict[str, Any], message: str, hint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Said before anything is looked for or fetched."""
    monkeypatch.setattr(loading, "resolve", lambda *_, **__: pytest.fail("looked for the model"))
    with pytest.raises(UsageError, match=message) as error:
        LLM.load("toy", **wish)
    assert error.value.hint == hint


def test_without_heads_a_static_tree_needs_a_shape(load: Load) -> None:
    with pytest.raises(UsageError, match="a static one needs heads or a given shape"):
        load(dynamic_tree=False)
    assert isinstance(plan(load(tree="2x2", dynamic_tree=False)).policy, StaticPolicy)


def test_drafters_that_come_later_take_the_model_s_threads(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other heads, and the drafters of single answers."""
    llm, asked = LLM(load(threads=3)), list[int | None]()

    def note(*_: Any, threads: int | None = None, **__: Any) -> None:
        asked.append(threads)
        raise KeyError

    monkeypatch.setattr(loading, "speculation", note)
    monkeypatch.setattr(choices, "build_drafter", note)
    for later in (lambda: other_drafting(llm.parts, "auto", Wishes()), lambda: llm.choices.plan("suffix", None)):
        with pytest.raises(KeyError):
            later()
    assert asked == [3, 3]


@pytest.mark.parametrize(
    "wrong", [{"max_rows": 0}, {"max_rows": None}, {"threads": 0}, {"threads": True}, {"max_context": 7}]
)
def test_numbers_of_the_runtime_that_cannot_be_are_refused(load: Load, wrong: dict[str, Any]) -> None:
    (name,) = wrong
    with pytest.raises(UsageError, match=f"{name} is {wrong[name]}; expected a whole number"):
        load(**wrong)
