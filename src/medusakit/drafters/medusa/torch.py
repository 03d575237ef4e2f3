"""The paper's parallel heads as a torch module: for training, and the oracle of the ONNX graph's tests."""

from __future__ import annotations

from collections.abc import Generator
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from medusakit.drafters.medusa.config import MedusaParams


class MedusaNet(nn.Module):  # type: ignore[misc]  # torch is not typed for mypy here
    """Head k: Proj(ResBlock_L(...ResBlock_1(h))), ResBlock(x) = x + SiLU(W x + b) (Medusa, eq. 1).

    W and b start at zero, so an untrained head repeats the LM head's guess. Blocks of a head are distinct modules.
    """

    def __init__(
        self, params: MedusaParams, depth: int, hidden_size: int, rows: Tensor | None = None, dropout: float = 0.0
    ) -> None:
        """rows [Vd, d]: the LM head's rows that an own projection starts from."""
        super().__init__()
        self.params, self.max_depth, self.dropout = params, depth, dropout
        self.blocks = nn.ModuleList(
            nn.ParameterDict(
                {
                    "weight": nn.Parameter(torch.zeros(depth, hidden_size, hidden_size)),
                    "bias": nn.Parameter(torch.zeros(depth, hidden_size)),
                }
            )
            for _ in range(params.blocks)
        )
        if params.projection == "own":
            if rows is None:
                raise ValueError("an own projection starts from the LM head's rows")
            self.projection = nn.Parameter(rows.repeat(depth, 1, 1))

    def forward(
        self, hidden: Tensor, embedded: Tensor, rows: tuple[Tensor, Tensor]
    ) -> Generator[Tensor, Tensor | None, None]:
        """Per depth [N, d]: what the projection reads. The same call as HydraNet's; tokens are not looked at."""
        state = hidden[rows]
        for depth in range(self.max_depth):
            x = state
            for block in self.blocks:
                part = cast(nn.ParameterDict, block)
                inner = functional.silu(functional.linear(x, part["weight"][depth], part["bias"][depth]))
                x = x + functional.dropout(inner, self.dropout, self.training)
            going_on = yield x
            if going_on is not None:
                state = state[going_on]
