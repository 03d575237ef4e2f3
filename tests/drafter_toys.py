"""Random drafters over a toy model, for the tests of all families."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from medusakit.artifact.schema import DrafterConfig
from medusakit.drafters.base import Drafter, DraftState
from medusakit.runtimes.reference_source import ArraySource, random_source
from medusakit.train.heads import build_net, load_backdrop
from medusakit.tree.topology import Draft, Topology

torch.set_num_threads(1)  # tiny products: a second thread only waits
VOCAB, SIZE = 50, 16
DRAFT_IDS = np.arange(3, 43, dtype=np.int32)  # 40 of 50
SOURCE: ArraySource = random_source(5, VOCAB, hidden_size=SIZE)
HYDRA = DrafterConfig(family="hydra", depth=3, draft_vocab_size=len(DRAFT_IDS), params={"inner": 24})
MEDUSA = DrafterConfig(family="medusa", depth=3, draft_vocab_size=len(DRAFT_IDS), params={"blocks": 2})
CNN_LSTM = HYDRA.model_copy(update={"family": "cnn_lstm", "params": {"window": 3, "cell": 20}})
CONTEXT = HYDRA.model_copy(update={"family": "context", "params": {"heads": 2, "inner": 8, "window": 5}})
SSM = HYDRA.model_copy(update={"family": "ssm", "params": {"memory": 24}})
OWN_MEDUSA = MEDUSA.model_copy(update={"params": {"blocks": 1, "projection": "own"}})


def head_rows() -> torch.Tensor:
    return torch.from_numpy(SOURCE.arrays["lm_head"][DRAFT_IDS])


def random_net(config: DrafterConfig, seed: int = 0) -> torch.nn.Module:
    """The family's network with no zero left in it."""
    torch.manual_seed(seed)
    net = build_net(config, SIZE, head_rows()).eval()
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return net


def tensors_of(net: torch.nn.Module) -> dict[str, np.ndarray[Any, Any]]:
    stored = {name: value.detach().numpy() for name, value in net.state_dict().items()}
    return stored | {"draft_ids": DRAFT_IDS}


def answer(length: int, seed: int = 1) -> tuple[list[int], np.ndarray[Any, Any]]:
    """Token ids [length + 1] and hidden states [length, d]; state j stands at token j."""
    rng = np.random.default_rng(seed)
    return rng.choice(DRAFT_IDS, length + 1).tolist(), rng.standard_normal((length, SIZE)).astype(np.float32)


def state_at(place: int, ids: list[int], hidden: np.ndarray[Any, Any], row: int = 0) -> DraftState:
    """The last accepted position is `place`, the root ids[place + 1]."""
    return DraftState(row, ids[place + 1], hidden[place], ids[: place + 2])


def walk_to(drafter: Drafter, place: int, ids: list[int], hidden: np.ndarray[Any, Any], row: int = 0) -> DraftState:
    """Drafts are made and positions committed, one, two and three at a time, until `place` is the last accepted one."""
    at, lengths = 0, (1, 2, 3)
    while at < place:
        drafter.propose([state_at(at, ids, hidden, row)], Topology.chain(1))
        to = min(at + lengths[at % 3], place)
        drafter.observe(row, ids[at + 1 : to + 1], hidden[at + 1 : to + 1])
        at = to
    return state_at(place, ids, hidden, row)


def torch_logprobs(
    net: torch.nn.Module, ids: list[int], hidden: np.ndarray[Any, Any], place: int, path: list[int]
) -> np.ndarray[Any, Any]:
    """[Vd] log-probs after `path` (drafted tokens), by the module as it is trained: along one answer."""
    backdrop = load_backdrop(SOURCE, DRAFT_IDS.astype(np.int64))
    tokens = ids[: place + 2] + path + [0] * net.max_depth
    rows = np.zeros((1, len(tokens) - 1, SIZE), np.float32)
    rows[0, : place + 1] = hidden[: place + 1]
    with torch.no_grad():
        states = list(net(torch.from_numpy(rows), backdrop.embedding[torch.tensor([tokens])],
                          (torch.tensor([0]), torch.tensor([place]))))  # fmt: skip
        logprobs: np.ndarray[Any, Any] = torch.log_softmax(states[len(path)] @ backdrop.head.T, -1)[0].numpy()
    return logprobs


def assert_agrees(draft: Draft, net: torch.nn.Module, ids: list[int], hidden: np.ndarray[Any, Any], place: int) -> None:
    """Every node carries the token of its rank under its path, with its log-probability, by the torch module."""
    shape = draft.topology
    for node in range(1, shape.num_nodes):
        path = [int(draft.tokens[member]) for member in shape.path(node)[1:-1]]
        expected = torch_logprobs(net, ids, hidden, place, path)
        order = np.argsort(-expected, kind="stable")
        assert int(draft.tokens[node]) == int(DRAFT_IDS[order[shape.ranks[node]]])
        assert draft.logprobs[node] == pytest.approx(expected[order[shape.ranks[node]]], abs=2e-3)
