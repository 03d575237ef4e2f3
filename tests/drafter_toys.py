"""Random drafters over a toy model, for the tests of both families."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from medusakit.artifact.schema import DrafterConfig
from medusakit.drafters.base import DraftState
from medusakit.runtimes.reference_source import ArraySource, random_source
from medusakit.train.heads import build_net

torch.set_num_threads(1)  # tiny products: a second thread only waits
VOCAB, SIZE = 50, 16
DRAFT_IDS = np.arange(3, 43, dtype=np.int32)  # 40 of 50
SOURCE: ArraySource = random_source(5, VOCAB, hidden_size=SIZE)
HYDRA = DrafterConfig(family="hydra", depth=3, draft_vocab_size=len(DRAFT_IDS), params={"inner": 24})
MEDUSA = DrafterConfig(family="medusa", depth=3, draft_vocab_size=len(DRAFT_IDS), params={"blocks": 2})
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
