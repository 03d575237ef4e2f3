"""The parallel heads: the graph says what the torch module says, and the module what the paper's formula says."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from drafter_toys import (
    DRAFT_IDS,
    MEDUSA,
    OWN_MEDUSA,
    SIZE,
    SOURCE,
    answer,
    head_rows,
    random_net,
    state_at,
    tensors_of,
)
from medusakit.artifact.schema import DrafterConfig
from medusakit.drafters.medusa.config import medusa_params, tensor_shapes
from medusakit.drafters.medusa.drafter import MedusaDrafter
from medusakit.errors import ArtifactError, UsageError
from medusakit.tree.topology import Beam, FloatArray, Topology

TREE = Topology.from_rank_paths([(0,), (2,), (2, 1), (0, 0), (2, 1, 0), (1,), (2, 1, 3), (0, 0, 1)])


def drafter_of(config: DrafterConfig, net: torch.nn.Module, *, quantised: bool = False) -> MedusaDrafter:
    return MedusaDrafter(config, tensors_of(net), SOURCE, threads=1, quantised=quantised)


def formula(config: DrafterConfig, net: torch.nn.Module, hidden: FloatArray) -> list[FloatArray]:
    """Log-probs [Vd] of every head, in NumPy, as eq. 1 has it."""
    tensors = tensors_of(net)
    found = []
    for head in range(config.depth):
        x = hidden.astype(np.float64)
        for block in range(config.params["blocks"]):
            inner = tensors[f"blocks.{block}.weight"][head] @ x + tensors[f"blocks.{block}.bias"][head]
            x = x + inner / (1 + np.exp(-inner))
        rows = tensors["projection"][head] if "projection" in tensors else head_rows().numpy()
        logits = rows @ x
        found.append(logits - np.log(np.exp(logits - logits.max()).sum()) - logits.max())
    return found


@pytest.mark.parametrize("config", [MEDUSA, OWN_MEDUSA], ids=["shared", "own"])
@pytest.mark.parametrize("shape", [TREE, Topology.chain(2), Beam((3, 2, 4), 3)])
def test_every_node_is_the_guess_of_its_depth(config: DrafterConfig, shape: Topology | Beam) -> None:
    net = random_net(config)
    ids, hidden = answer(4)
    draft = drafter_of(config, net).propose([state_at(2, ids, hidden)], shape)[0]
    expected = formula(config, net, hidden[2])
    for node in range(1, draft.topology.num_nodes):
        log_q = expected[draft.topology.depths[node] - 1]
        place = np.argsort(-log_q, kind="stable")[draft.topology.ranks[node]]
        assert int(draft.tokens[node]) == int(DRAFT_IDS[place])
        assert draft.logprobs[node] == pytest.approx(log_q[place], abs=1e-3)


def test_a_beam_keeps_the_most_probable_paths() -> None:
    net = random_net(MEDUSA)
    ids, hidden = answer(4)
    draft = drafter_of(MEDUSA, net).propose([state_at(2, ids, hidden)], Beam((3, 4), 5))[0]
    first, second = (np.sort(log_q)[::-1] for log_q in formula(MEDUSA, net, hidden[2])[:2])
    every = np.sort((first[:3, None] + second[None, :5]).reshape(-1))[::-1]
    found = np.sort(draft.path_logprobs()[draft.topology.depths == 2])[::-1]
    np.testing.assert_allclose(found, every[:4], atol=1e-3)


def test_untrained_heads_repeat_the_lm_head() -> None:
    from medusakit.train.heads import build_net

    net = build_net(MEDUSA, SIZE, head_rows())
    hidden = torch.randn(3, 5, SIZE)
    states = list(net(hidden, torch.zeros(3, 6, SIZE), (torch.tensor([0, 2]), torch.tensor([1, 4]))))
    assert len(states) == 3
    for state in states:
        assert torch.equal(state, hidden[[0, 2], [1, 4]])


def test_rows_of_a_batch_are_independent() -> None:
    drafter = drafter_of(MEDUSA, random_net(MEDUSA))
    ids, hidden = answer(6)
    states = [state_at(place, ids, hidden, row=place) for place in (1, 3)]
    for together, state in zip(drafter.propose(states, TREE), states, strict=True):
        alone = drafter.propose([state], TREE)[0]
        assert together.tokens.tolist() == alone.tokens.tolist()
        np.testing.assert_allclose(together.logprobs, alone.logprobs, atol=1e-4)


def test_eight_bit_weights_guess_nearly_the_same() -> None:
    net = random_net(MEDUSA)
    ids, hidden = answer(6)
    state = [state_at(2, ids, hidden)]
    exact = drafter_of(MEDUSA, net).propose(state, Topology.chain(3))[0]
    rough = drafter_of(MEDUSA, net, quantised=True).propose(state, Topology.chain(3))[0]
    np.testing.assert_allclose(exact.logprobs, rough.logprobs, atol=0.3)


def test_limits_are_checked() -> None:
    drafter = drafter_of(MEDUSA, random_net(MEDUSA))
    ids, hidden = answer(3)
    with pytest.raises(UsageError, match="4 deep, but the drafter guesses 3"):
        drafter.propose([state_at(0, ids, hidden)], Topology.chain(4))
    with pytest.raises(ArtifactError, match="depth = 6"):
        medusa_params(MEDUSA.model_copy(update={"depth": 6}))
    with pytest.raises(ArtifactError, match=r"params\.blocks"):  # each would be looked for
        medusa_params(MEDUSA.model_copy(update={"params": {"blocks": 10**12}}))
    with pytest.raises(ArtifactError, match=r"params\.projection = 'both'"):
        medusa_params(MEDUSA.model_copy(update={"params": {"projection": "both"}}))


@pytest.mark.parametrize("config", [MEDUSA, OWN_MEDUSA], ids=["shared", "own"])
def test_tensor_shapes_are_those_of_the_module(config: DrafterConfig) -> None:
    shapes = {name: value.shape for name, value in tensors_of(random_net(config)).items()}
    assert shapes == tensor_shapes(config, SIZE)
