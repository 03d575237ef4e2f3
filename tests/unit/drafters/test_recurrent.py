"""The recurrent families: the graph says what the torch module says, on any tree, after any commits."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from drafter_toys import (
    CNN_LSTM,
    CONTEXT,
    DRAFT_IDS,
    HYDRA,
    SIZE,
    SOURCE,
    SSM,
    answer,
    assert_agrees,
    random_net,
    state_at,
    tensors_of,
    walk_to,
)
from medusakit.artifact.schema import DrafterConfig
from medusakit.drafters.cnn_lstm.config import tensor_shapes as cnn_lstm_shapes
from medusakit.drafters.cnn_lstm.drafter import CnnLstmDrafter
from medusakit.drafters.context.config import tensor_shapes as context_shapes
from medusakit.drafters.context.drafter import ContextDrafter
from medusakit.drafters.hydra.config import tensor_shapes as hydra_shapes
from medusakit.drafters.hydra.drafter import HydraDrafter
from medusakit.drafters.recurrent.drafter import RecurrentDrafter
from medusakit.drafters.ssm.config import tensor_shapes as ssm_shapes
from medusakit.drafters.ssm.drafter import MAX_WAITING, SsmDrafter
from medusakit.drafters.ssm.torch import linear_scan
from medusakit.errors import ArtifactError, UsageError
from medusakit.train.heads import build_net
from medusakit.tree.topology import Beam, Topology

CONFIGS = [HYDRA, CONTEXT, CNN_LSTM, SSM]
LOOK_BACK = [CONTEXT, CNN_LSTM, SSM]
CLASSES: dict[str, type[RecurrentDrafter]] = {
    "hydra": HydraDrafter,
    "context": ContextDrafter,
    "cnn_lstm": CnnLstmDrafter,
    "ssm": SsmDrafter,
}
SHAPES = {"hydra": hydra_shapes, "context": context_shapes, "cnn_lstm": cnn_lstm_shapes, "ssm": ssm_shapes}
TREE = Topology.from_rank_paths([(0,), (2,), (2, 1), (0, 0), (2, 1, 0), (1,), (2, 1, 3), (0, 0, 1), (2, 0)])


def drafter_of(config: DrafterConfig, net: torch.nn.Module, *, quantised: bool = False) -> RecurrentDrafter:
    return CLASSES[config.family](config, tensors_of(net), SOURCE, threads=1, quantised=quantised)


def families(configs: list[DrafterConfig]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("config", configs, ids=lambda config: config.family)


@families(CONFIGS)
@pytest.mark.parametrize("shape", [TREE, Topology.chain(3), Topology.chain(1), Beam((3, 2, 2), 4), Beam((2,), 3)])
def test_graph_equals_torch_module(config: DrafterConfig, shape: Topology | Beam) -> None:
    net = random_net(config)
    drafter = drafter_of(config, net)
    ids, hidden = answer(12)
    for place in (0, 3, 7, 11):
        drafter.forget(0)
        state = walk_to(drafter, place, ids, hidden)
        assert_agrees(drafter.propose([state], shape)[0], net, ids, hidden, place)


@families(CONFIGS)
def test_a_draft_that_is_made_twice_is_the_same(config: DrafterConfig) -> None:
    drafter = drafter_of(config, random_net(config))
    state = walk_to(drafter, 5, *answer(8))
    first, second = (drafter.propose([state], TREE)[0] for _ in range(2))
    assert first.tokens.tolist() == second.tokens.tolist()
    np.testing.assert_allclose(first.logprobs, second.logprobs, rtol=1e-5, atol=1e-5)


@families(LOOK_BACK)
def test_what_was_committed_changes_the_draft(config: DrafterConfig) -> None:
    drafter = drafter_of(config, random_net(config))
    ids, hidden = answer(8)
    seen = drafter.propose([walk_to(drafter, 5, ids, hidden)], TREE)[0]
    unseen = drafter_of(config, random_net(config)).propose([state_at(5, ids, hidden)], TREE)[0]
    assert not np.allclose(seen.logprobs, unseen.logprobs, atol=1e-2)


@families(LOOK_BACK)
def test_behind_a_gap_and_after_forgetting_a_row_starts_anew(config: DrafterConfig) -> None:
    """Plain steps that the drafter was not shown, and a row that another sequence takes."""
    ids, hidden = answer(12)
    expected = drafter_of(config, random_net(config)).propose([state_at(9, ids, hidden)], TREE)[0]
    drafter = drafter_of(config, random_net(config))
    walk_to(drafter, 5, ids, hidden)
    gap = drafter.propose([state_at(9, ids, hidden)], TREE)[0]
    walk_to(drafter, 9, *answer(12, seed=3))
    drafter.forget(0)
    forgotten = drafter.propose([state_at(9, ids, hidden)], TREE)[0]
    for found in (gap, forgotten):
        assert found.tokens.tolist() == expected.tokens.tolist()
        np.testing.assert_allclose(found.logprobs, expected.logprobs, rtol=1e-5, atol=1e-5)


@families(LOOK_BACK)
def test_commits_of_a_row_that_was_never_drafted_for_are_ignored(config: DrafterConfig) -> None:
    ids, hidden = answer(6)
    drafter = drafter_of(config, random_net(config))
    drafter.observe(0, ids[1:4], hidden[1:4])
    expected = drafter_of(config, random_net(config)).propose([state_at(3, ids, hidden)], TREE)[0]
    assert drafter.propose([state_at(3, ids, hidden)], TREE)[0].tokens.tolist() == expected.tokens.tolist()


@pytest.mark.parametrize("length", [1, 2, 7, 16])
def test_the_scan_is_the_recurrence(length: int) -> None:
    torch.manual_seed(0)
    keep, added = torch.rand(2, length, 5), torch.randn(2, length, 5)
    state, expected = torch.zeros(2, 5), []
    for place in range(length):
        state = keep[:, place] * state + added[:, place]
        expected.append(state)
    torch.testing.assert_close(linear_scan(keep, added), torch.stack(expected, 1))


def test_many_commits_without_a_draft_are_bounded() -> None:
    """An ssm that is only shown what was committed, for longer than it keeps: it drafts on, nearly as if it had read
    everything (its decays are short here)."""
    net = random_net(SSM)
    length = MAX_WAITING + 40
    ids, hidden = answer(length)
    drafter = drafter_of(SSM, net)
    drafter.propose([state_at(0, ids, hidden)], Topology.chain(1))
    for place in range(1, length):
        drafter.observe(0, ids[place : place + 1], hidden[place : place + 1])
    arrays = drafter._context([state_at(length - 1, ids, hidden)])
    assert arrays["before_hidden"].shape == (1, MAX_WAITING, SIZE)
    assert len(drafter.propose([state_at(length - 1, ids, hidden)], TREE)) == 1


@families(CONFIGS)
def test_the_draft_has_exactly_the_nodes_of_the_topology(config: DrafterConfig) -> None:
    ids, hidden = answer(3)
    draft = drafter_of(config, random_net(config)).propose([state_at(0, ids, hidden)], TREE)[0]
    assert draft.topology is TREE
    assert draft.tokens[0] == ids[1]
    assert draft.logprobs[0] == 0.0


@families(CONFIGS)
def test_plain_shape_proposes_the_root_alone(config: DrafterConfig) -> None:
    ids, hidden = answer(3)
    draft = drafter_of(config, random_net(config)).propose([state_at(0, ids, hidden)], Topology.chain(0))[0]
    assert draft.tokens.tolist() == [ids[1]]


@families(CONFIGS)
@pytest.mark.parametrize("shape", [TREE, Beam((3, 2), 4)])
def test_rows_of_a_batch_do_not_touch_each_other(config: DrafterConfig, shape: Topology | Beam) -> None:
    """Rows of different lengths, one of them new."""
    net = random_net(config)
    drafter = drafter_of(config, net)
    answers = [answer(8, seed) for seed in (1, 2, 3)]
    states = [walk_to(drafter, place, *answers[row], row=row) for row, place in enumerate((1, 6, 0))]
    for draft, state, (ids, hidden) in zip(drafter.propose(states, shape), states, answers, strict=True):
        assert_agrees(draft, net, ids, hidden, len(state.ids) - 2)


@families(CONFIGS)
def test_a_row_whose_paths_are_improbable_is_drafted_no_further(config: DrafterConfig) -> None:
    net = random_net(config)
    drafter = drafter_of(config, net)
    answers = [answer(8, seed) for seed in (1, 2, 3)]
    states = [walk_to(drafter, 3, *answers[row], row=row) for row in range(3)]
    whole = drafter.propose(states, Beam((3, 2, 2), 4))
    sure = sorted(float(np.exp(draft.logprobs[1])) for draft in whole)
    cut = drafter.propose(states, Beam((3, 2, 2), 4, least=(sure[0] + sure[1]) / 2))
    depths = [draft.topology.max_depth for draft in cut]
    assert sorted(depths)[0] == 1 and max(depths) > 1
    for draft, (ids, hidden) in zip(cut, answers, strict=True):
        assert_agrees(draft, net, ids, hidden, 3)


@settings(max_examples=6, deadline=None)
@given(st.sampled_from(CONFIGS), st.lists(st.integers(0, 4), min_size=1, max_size=8), st.integers(0, 2**31))
def test_any_tree_runs_through_the_same_graph(config: DrafterConfig, choices: list[int], seed: int) -> None:
    """Random shapes: each new node hangs under a random earlier one, with a random unused rank."""
    rng = np.random.default_rng(seed)
    paths: list[tuple[int, ...]] = [()]
    for rank in choices:
        parent = paths[rng.integers(len(paths))]
        if len(parent) < 3 and (*parent, rank) not in paths:
            paths.append((*parent, rank))
    if len(paths) == 1:
        return
    net = random_net(config)
    ids, hidden = answer(3)
    draft = drafter_of(config, net).propose([state_at(0, ids, hidden)], Topology.from_rank_paths(paths[1:]))[0]
    assert_agrees(draft, net, ids, hidden, 0)


@families(CONFIGS)
def test_eight_bit_weights_guess_nearly_the_same(config: DrafterConfig) -> None:
    net = random_net(config)
    ids, hidden = answer(6)
    exact, rough = (
        drafter.propose([walk_to(drafter, 4, ids, hidden)], Topology.chain(3))[0]
        for drafter in (drafter_of(config, net), drafter_of(config, net, quantised=True))
    )
    assert exact.tokens[1] == rough.tokens[1]
    assert exact.logprobs[1] == pytest.approx(rough.logprobs[1], abs=0.3)


@families(CONFIGS)
def test_an_untrained_cell_repeats_the_lm_heads_guess(config: DrafterConfig) -> None:
    ids, hidden = answer(3)
    draft = drafter_of(config, build_net(config, SIZE, torch.zeros(1))).propose(
        [state_at(1, ids, hidden)], Topology.chain(3)
    )[0]
    best = int(DRAFT_IDS[np.argmax(SOURCE.arrays["lm_head"][DRAFT_IDS] @ hidden[1])])
    assert draft.tokens[1:].tolist() == [best] * 3


@families(CONFIGS)
def test_too_deep_a_tree_is_refused(config: DrafterConfig) -> None:
    ids, hidden = answer(3)
    with pytest.raises(UsageError, match="4 deep, but the drafter guesses 3"):
        drafter_of(config, random_net(config)).propose([state_at(0, ids, hidden)], Topology.chain(4))


@pytest.mark.parametrize(
    ("config", "params", "message"),
    [
        (HYDRA, {"widht": 3}, r"hydra: params\.widht"),
        (HYDRA, {"inner": 0}, r"params\.inner = 0"),
        (CNN_LSTM, {"window": 1}, r"cnn_lstm: params\.window = 1"),
        (SSM, {"inner": 8}, r"ssm: params\.inner"),
        (CONTEXT, {"heads": 0}, r"context: params\.heads = 0"),
    ],
)
def test_config_names_the_bad_key(config: DrafterConfig, params: dict[str, int], message: str) -> None:
    with pytest.raises(ArtifactError, match=message):
        drafter_of(config.model_copy(update={"params": params}), random_net(config))


@families(CONFIGS)
def test_tensor_shapes_are_those_of_the_module(config: DrafterConfig) -> None:
    shapes = {name: value.shape for name, value in tensors_of(random_net(config)).items()}
    assert shapes == SHAPES[config.family](config, SIZE)
