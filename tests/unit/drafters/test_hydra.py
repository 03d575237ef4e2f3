"""The recurrent drafter: its graph says what its torch module says, on any tree."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from drafter_toys import DRAFT_IDS, HYDRA, SIZE, SOURCE, VOCAB, answer, random_net, state_at, tensors_of
from medusakit.artifact.schema import DrafterConfig
from medusakit.drafters.hydra.config import hydra_params, tensor_shapes
from medusakit.drafters.hydra.drafter import HydraDrafter
from medusakit.errors import ArtifactError, UsageError
from medusakit.train.loop import Backdrop
from medusakit.tree.topology import Beam, Draft, Topology

TREE = Topology.from_rank_paths([(0,), (2,), (2, 1), (0, 0), (2, 1, 0), (1,), (2, 1, 3), (0, 0, 1), (2, 0)])


def drafter_of(config: DrafterConfig, net: torch.nn.Module, *, quantised: bool = False) -> HydraDrafter:
    return HydraDrafter(config, tensors_of(net), SOURCE, threads=1, quantised=quantised)


def torch_logprobs(net: torch.nn.Module, ids: list[int], hidden: np.ndarray, place: int, path: list[int]) -> np.ndarray:
    """[Vd] log-probs after `path` (drafted tokens), by the module as it is trained: along one answer."""
    from medusakit.train.heads import load_backdrop

    backdrop: Backdrop = load_backdrop(SOURCE, DRAFT_IDS.astype(np.int64))
    tokens = ids[: place + 2] + path + [0] * net.max_depth
    rows = np.zeros((1, len(tokens) - 1, SIZE), np.float32)
    rows[0, : place + 1] = hidden[: place + 1]
    with torch.no_grad():
        states = list(net(torch.from_numpy(rows), backdrop.embedding[torch.tensor([tokens])],
                          (torch.tensor([0]), torch.tensor([place]))))  # fmt: skip
        return torch.log_softmax(states[len(path)] @ backdrop.head.T, -1)[0].numpy()


def assert_agrees(draft: Draft, net: torch.nn.Module, ids: list[int], hidden: np.ndarray, place: int) -> None:
    shape = draft.topology
    for node in range(1, shape.num_nodes):
        path = [int(draft.tokens[member]) for member in shape.path(node)[1:-1]]
        expected = torch_logprobs(net, ids, hidden, place, path)
        order = np.argsort(-expected, kind="stable")
        assert int(draft.tokens[node]) == int(DRAFT_IDS[order[shape.ranks[node]]])
        assert draft.logprobs[node] == pytest.approx(expected[order[shape.ranks[node]]], abs=2e-3)


@pytest.mark.parametrize("shape", [TREE, Topology.chain(3), Topology.chain(1), Beam((3, 2, 2), 4), Beam((2,), 3)])
def test_graph_equals_torch_module(shape: Topology | Beam) -> None:
    net = random_net(HYDRA)
    drafter = drafter_of(HYDRA, net)
    ids, hidden = answer(8)
    for place in (0, 3, 7):
        assert_agrees(drafter.propose([state_at(place, ids, hidden)], shape)[0], net, ids, hidden, place)


def test_the_draft_has_exactly_the_nodes_of_the_topology() -> None:
    ids, hidden = answer(3)
    draft = drafter_of(HYDRA, random_net(HYDRA)).propose([state_at(0, ids, hidden)], TREE)[0]
    assert draft.topology is TREE
    assert draft.tokens[0] == ids[1]
    assert draft.logprobs[0] == 0.0


def test_plain_shape_proposes_the_root_alone() -> None:
    ids, hidden = answer(3)
    draft = drafter_of(HYDRA, random_net(HYDRA)).propose([state_at(0, ids, hidden)], Topology.chain(0))[0]
    assert draft.tokens.tolist() == [ids[1]]


@pytest.mark.parametrize("shape", [TREE, Beam((3, 2), 4)])
def test_rows_of_a_batch_do_not_touch_each_other(shape: Topology | Beam) -> None:
    drafter = drafter_of(HYDRA, random_net(HYDRA))
    states = [state_at(row + 1, *answer(8, seed), row=row) for row, seed in enumerate((1, 2, 3))]
    for together, state in zip(drafter.propose(states, shape), states, strict=True):
        alone = drafter.propose([state], shape)[0]
        assert together.tokens.tolist() == alone.tokens.tolist()
        np.testing.assert_allclose(together.logprobs, alone.logprobs, atol=1e-3)


@settings(max_examples=8, deadline=None)
@given(st.lists(st.integers(0, 4), min_size=1, max_size=8), st.integers(0, 2**31))
def test_any_tree_runs_through_the_same_graph(choices: list[int], seed: int) -> None:
    """Random shapes: each new node hangs under a random earlier one, with a random unused rank."""
    rng = np.random.default_rng(seed)
    paths: list[tuple[int, ...]] = [()]
    for rank in choices:
        parent = paths[rng.integers(len(paths))]
        if len(parent) < 3 and (*parent, rank) not in paths:
            paths.append((*parent, rank))
    if len(paths) == 1:
        return
    net = random_net(HYDRA)
    ids, hidden = answer(3)
    draft = drafter_of(HYDRA, net).propose([state_at(0, ids, hidden)], Topology.from_rank_paths(paths[1:]))[0]
    assert_agrees(draft, net, ids, hidden, 0)


def test_eight_bit_weights_guess_nearly_the_same() -> None:
    net = random_net(HYDRA)
    ids, hidden = answer(6)
    exact = drafter_of(HYDRA, net).propose([state_at(2, ids, hidden)], Topology.chain(3))[0]
    rough = drafter_of(HYDRA, net, quantised=True).propose([state_at(2, ids, hidden)], Topology.chain(3))[0]
    assert exact.tokens.tolist() == rough.tokens.tolist()
    np.testing.assert_allclose(exact.logprobs, rough.logprobs, atol=0.3)


def test_too_deep_a_tree_is_refused() -> None:
    ids, hidden = answer(3)
    drafter = drafter_of(HYDRA, random_net(HYDRA))
    with pytest.raises(UsageError, match="4 deep, but the drafter guesses 3"):
        drafter.propose([state_at(0, ids, hidden)], Topology.chain(4))


def test_config_names_the_bad_key() -> None:
    with pytest.raises(ArtifactError, match=r"params\.widht"):
        hydra_params(HYDRA.model_copy(update={"params": {"widht": 3}}))
    with pytest.raises(ArtifactError, match=r"params\.inner = 0"):
        hydra_params(HYDRA.model_copy(update={"params": {"inner": 0}}))


def test_tensor_shapes_are_those_of_the_module() -> None:
    shapes = {name: value.shape for name, value in tensors_of(random_net(HYDRA)).items()}
    assert shapes == tensor_shapes(HYDRA, SIZE)
    assert SOURCE.spec.vocab_size == VOCAB
