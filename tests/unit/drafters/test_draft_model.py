"""A second model as drafter: it guesses what it would say itself, and its rows keep in step with the text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from engine_fakes import VOCAB, LetterTokenizer, answer, plain_engine
from medusakit.drafters.base import DraftState
from medusakit.drafters.draft_model import load
from medusakit.drafters.draft_model.drafter import BEAM, DraftModelDrafter
from medusakit.drafters.draft_model.load import load_draft_model
from medusakit.engine.controller import FixedController
from medusakit.engine.engine import Engine
from medusakit.engine.plan import make_plan
from medusakit.errors import UnsupportedModelError, UsageError
from medusakit.models.resolve import open_weights, resolve
from medusakit.models.spec import ModelSpec
from medusakit.runtimes.reference import ReferenceRuntime, random_reference
from medusakit.settings import SamplingParams
from medusakit.tree.policy import DynamicPolicy, StaticPolicy
from medusakit.tree.topology import Beam, Draft, Topology
from tiny import write_hf

TREE = Topology.from_rank_paths([(0,), (2,), (2, 1), (0, 0), (2, 1, 0), (1,), (0, 0, 1)])
SHAPES = [TREE, Topology.chain(4), Beam((3, 2, 2), 4), BEAM]
GREEDY = SamplingParams(max_tokens=30)


def runtime(seed: int = 0, **limits: int) -> ReferenceRuntime:
    return random_reference(seed, VOCAB, **{"context_length": 64, "max_rows": 4, **limits})


def state(ids: Sequence[int], row: int = 0) -> DraftState:
    return DraftState(row, ids[-1], np.zeros(16, np.float32), list(ids))


def log_probs(model: ReferenceRuntime, ids: Sequence[int]) -> np.ndarray:
    """[V] of the token after `ids`, by a prefill of them all."""
    row = model.add_row()
    logits = model.prefill(row, list(ids)).logits(0).astype(np.float64)
    model.drop_row(row)
    return logits - np.log(np.exp(logits).sum())


def assert_is_the_models_own(draft: Draft, ids: Sequence[int], seed: int = 0) -> None:
    oracle = runtime(seed)
    for node in range(1, draft.topology.num_nodes):
        path = [int(draft.tokens[member]) for member in draft.topology.path(node)[1:-1]]
        expected = log_probs(oracle, [*ids, *path])
        token = int(np.argsort(-expected, kind="stable")[draft.topology.ranks[node]])
        assert int(draft.tokens[node]) == token
        assert draft.logprobs[node] == pytest.approx(expected[token], abs=1e-4)


@pytest.mark.parametrize("shape", SHAPES)
def test_guesses_are_the_models_own(shape: Topology | Beam) -> None:
    drafter = DraftModelDrafter(runtime())
    draft = drafter.propose([state([3, 1, 4, 1, 5])], shape)[0]
    assert draft.topology.num_nodes > 4
    assert_is_the_models_own(draft, [3, 1, 4, 1, 5])


@pytest.mark.parametrize("shape", SHAPES)
def test_rows_follow_the_text_wherever_it_goes(shape: Topology | Beam) -> None:
    """One token more, several, none, a long gap, and a text that was cut and went another way."""
    drafter = DraftModelDrafter(runtime())
    rng = np.random.default_rng(0)
    text = rng.integers(0, VOCAB, 40).tolist()
    for ids in (text[:1], text[:2], text[:5], text[:5], text[:30], [*text[:20], 7, 7], text[:3]):
        assert_is_the_models_own(drafter.propose([state(ids)], shape)[0], ids)


def test_rows_together_and_a_row_that_is_forgotten() -> None:
    model = runtime()
    drafter = DraftModelDrafter(model)
    texts = [[1, 2, 3], [4, 5], [6, 7, 8, 9]]
    for draft, ids in zip(
        drafter.propose([state(ids, row) for row, ids in enumerate(texts)], TREE), texts, strict=True
    ):
        assert_is_the_models_own(draft, ids)
    assert len(model.rows) == 3
    drafter.forget(1)
    assert len(model.rows) == 2
    texts = [[1, 2, 3, 3, 3], [9, 9], [6, 7, 8, 9, 1]]  # row 1 is another text now
    for draft, ids in zip(
        drafter.propose([state(ids, row) for row, ids in enumerate(texts)], BEAM), texts, strict=True
    ):
        assert_is_the_models_own(draft, ids)
    for row in range(3):
        drafter.forget(row)
    drafter.forget(7)
    assert model.rows == ()


def test_a_text_longer_than_its_context_is_read_from_its_end() -> None:
    drafter = DraftModelDrafter(runtime(context_length=32))
    text = np.random.default_rng(1).integers(0, VOCAB, 100).tolist()
    for length in range(1, 100, 3):
        draft = drafter.propose([state(text[:length])], Topology.chain(4))[0]
        assert draft.topology.num_nodes == 5
    drafter.forget(0)
    fresh = drafter.propose([state(text)], Topology.chain(1))[0]
    assert int(fresh.tokens[1]) == int(np.argmax(log_probs(runtime(), text[-16:])))


@pytest.mark.parametrize(
    "params", [GREEDY, SamplingParams(max_tokens=30, temperature=0.9, seed=4)], ids=["greedy", "sampled"]
)
@pytest.mark.parametrize("seed", [0, 1])
def test_the_answer_is_the_backbones_whoever_drafts(seed: int, params: SamplingParams) -> None:
    """The model itself (everything is accepted if greedy), and one with other weights (nearly nothing is)."""
    prompts = [[1, 2, 3], [9, 4], [5, 6, 7, 8]]
    alone = [answer(plain_engine(), prompt, params) for prompt in prompts]
    drafter = DraftModelDrafter(runtime(seed))
    for policy in (StaticPolicy(TREE), DynamicPolicy(BEAM)):
        plan = make_plan(drafter, policy, 8)
        engine = Engine(runtime(0), LetterTokenizer(), FixedController(plan))
        sessions = [engine.start(prompt, params) for prompt in prompts]
        while any(session.running for session in sessions):
            engine.step()
        for session, expected in zip(sessions, alone, strict=True):
            assert tuple(session.output_ids) == expected.token_ids
            engine.finish(session)
        if seed == 0 and params is GREEDY:
            assert all(session.stats.tau > 2.5 for session in sessions)


def test_too_deep_a_shape_is_refused() -> None:
    drafter = DraftModelDrafter(runtime())
    with pytest.raises(UsageError, match="9 deep"):
        drafter.propose([state([1])], Topology.chain(9))
    with pytest.raises(UsageError, match="9 levels"):
        drafter.propose([state([1])], Beam((1,) * 9))


def test_rows_whose_paths_are_improbable_are_drafted_no_further() -> None:
    drafter = DraftModelDrafter(runtime())
    states = [state([token, 3], row) for row, token in enumerate((1, 5, 9))]
    sure = sorted(float(np.exp(draft.logprobs[1])) for draft in drafter.propose(states, BEAM))
    cut = drafter.propose(states, replace(BEAM, least=(sure[0] + sure[1]) / 2))
    depths = [draft.topology.max_depth for draft in cut]
    assert min(depths) == 1 and max(depths) > 1
    for draft, one in zip(cut, states, strict=True):
        assert_is_the_models_own(draft, one.ids)
        assert draft.topology.num_nodes == 1 + sum(BEAM.widths[: draft.topology.max_depth])


def test_it_is_opened_by_name_with_a_row_for_every_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEDUSA_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(load, "load_tokenizer", lambda _: LetterTokenizer())
    folder, spec = tiny_model(tmp_path / "small", 3)
    drafter = load_draft_model(str(folder), spec, LetterTokenizer(), threads=1, max_rows=2)  # type: ignore[arg-type]
    drafts = drafter.propose([state([1, 2, 3], 0), state([4, 5], 1)], BEAM)
    assert [draft.topology.max_depth for draft in drafts] == [4, 4]
    drafter.close()


@pytest.mark.parametrize(
    ("changed", "other", "message"),
    [
        ({"vocab_size": 127}, LetterTokenizer(), "vocabulary of 128, the model 127"),
        ({}, LetterTokenizer(hash="numbers"), "tokenizer letters, the model numbers"),
    ],
)
def test_another_vocabulary_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changed: dict[str, int], other: LetterTokenizer, message: str
) -> None:
    monkeypatch.setattr(load, "load_tokenizer", lambda _: LetterTokenizer())
    folder, spec = tiny_model(tmp_path / "small", 3)
    with pytest.raises(UnsupportedModelError, match=message) as caught:
        load_draft_model(str(folder), replace(spec, **changed), other)  # type: ignore[arg-type]
    assert str(folder) in str(caught.value)


def tiny_model(folder: Path, seed: int) -> tuple[Path, ModelSpec]:
    path = write_hf(folder, "llama", seed=seed)
    return path, open_weights(resolve(str(path))).spec
