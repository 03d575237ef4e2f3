"""What the recurrent families' torch modules share: the walk along the true path, which is how they are trained."""

from __future__ import annotations

from collections.abc import Generator

import torch
from torch import Tensor, nn

State = tuple[Tensor, ...]
"""What a place carries from depth to depth: tensors [N, w_i]."""


def rms(x: Tensor) -> Tensor:
    """Rows scaled to mean square one (no weights)."""
    return x * torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + 1e-6).to(x.dtype)


def uniform(out: int, reads: int) -> Tensor:
    """A matrix [out, reads] whose products keep about the size of what they read."""
    return torch.empty(out, reads).uniform_(-(reads**-0.5), reads**-0.5)


class RecurrentNet(nn.Module):  # type: ignore[misc]  # torch is not typed for mypy here
    """A cell that is applied once per depth, with the same weights. A family gives `start` and `cell`.

    Along the true path training and use read the same states, so nothing has to be learned about the cell's own errors.
    """

    max_depth: int

    def start(self, hidden: Tensor, embedded: Tensor, rows: tuple[Tensor, Tensor]) -> State:
        """The state of N places before their roots are read; arguments as in `forward`."""
        raise NotImplementedError

    def cell(self, state: State, embedded: Tensor, depth: int) -> tuple[State, Tensor]:
        """Reads a token, rms(e(token)) [N, d]: the next state, and what the LM head reads [N, d]."""
        raise NotImplementedError

    def forward(
        self, hidden: Tensor, embedded: Tensor, rows: tuple[Tensor, Tensor]
    ) -> Generator[Tensor, Tensor | None, None]:
        """States of all depths along the true path.

        hidden    [B, T, d] rows of B answers; embedded [B, T + 1, d]: rms(e(token)) of x_P-1 and of the answer, so that
                  embedded[:, j + 1] belongs to the root of row j
        rows      (answer [N], row [N]) of the N places to draft from
        yields    [N, d] per depth: the state whose logits guess the token at depth 1, 2, ...
        send      [M] which of the N places go on to the next depth (all of them, if nothing is sent)
        """
        answer, row = rows
        state = self.start(hidden, embedded, rows)
        for depth in range(self.max_depth):
            token = (row + 1 + depth).clamp(max=embedded.shape[1] - 1)
            state, reads = self.cell(state, embedded[answer, token], depth)
            going_on = yield reads
            if going_on is not None:
                state = tuple(part[going_on] for part in state)
                answer, row = answer[going_on], row[going_on]
