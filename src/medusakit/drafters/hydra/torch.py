"""The recurrent drafter as a torch module: for training, and the oracle of the ONNX graph's tests."""

from __future__ import annotations

from collections.abc import Generator

import torch
from torch import Tensor, nn
from torch.nn import functional

from medusakit.drafters.hydra.config import HydraParams


def rms(x: Tensor) -> Tensor:
    """Rows scaled to mean square one (no weights)."""
    return x * torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + 1e-6).to(x.dtype)


class HydraNet(nn.Module):  # type: ignore[misc]  # torch is not typed for mypy here
    """A cell that is applied once per depth, with the same weights: Hydra's heads (2402.05109) as a recurrence.

    s_0 = h_t, the backbone's hidden state at the last accepted position. At depth k the cell reads the state and the
    token drafted last (the root at k = 0):

        [g; u] = W_in [rms(s_k); rms(e(token_k))] + depth_k
        s_{k+1} = s_k + W_out (SiLU(g) * u)

    Logits are the LM head's rows times s_{k+1}; W_out starts at zero, so an untrained cell repeats the LM head's guess.
    Along the true path training and use read the same states, so nothing has to be learned about the cell's own errors.
    """

    def __init__(self, params: HydraParams, depth: int, hidden_size: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.max_depth, self.dropout = depth, dropout
        self.depth = nn.Parameter(torch.zeros(depth, 2 * params.inner))
        self.w_in = nn.Parameter(_uniform(2 * params.inner, 2 * hidden_size))
        self.w_out = nn.Parameter(torch.zeros(hidden_size, params.inner))

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
        state = hidden[answer, row]
        for depth in range(self.max_depth):
            token = (row + 1 + depth).clamp(max=embedded.shape[1] - 1)
            reads = torch.cat([rms(state), embedded[answer, token]], -1)
            gate, up = (functional.linear(reads, self.w_in) + self.depth[depth]).chunk(2, -1)
            inner = functional.dropout(functional.silu(gate) * up, self.dropout, self.training)
            state = state + functional.linear(inner, self.w_out)
            going_on = yield state
            if going_on is not None:
                state, answer, row = state[going_on], answer[going_on], row[going_on]


def _uniform(out: int, reads: int) -> Tensor:
    return torch.empty(out, reads).uniform_(-(reads**-0.5), reads**-0.5)
