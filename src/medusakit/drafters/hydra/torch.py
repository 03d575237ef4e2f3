"""The recurrent drafter as a torch module: for training, and the oracle of the ONNX graph's tests."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from medusakit.drafters.hydra.config import HydraParams
from medusakit.drafters.recurrent.torch import RecurrentNet, State, rms, uniform


class HydraNet(RecurrentNet):
    """Hydra's heads (2402.05109) as a recurrence.

    s_0 = h_t, the backbone's hidden state at the last accepted position. At depth k the cell reads the state and the
    token drafted last (the root at k = 0):

        [g; u] = W_in [rms(s_k); rms(e(token_k))] + depth_k
        s_{k+1} = s_k + W_out (SiLU(g) * u)

    Logits are the LM head's rows times s_{k+1}; W_out starts at zero, so an untrained cell repeats the LM head's guess.
    """

    def __init__(self, params: HydraParams, depth: int, hidden_size: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.max_depth, self.dropout = depth, dropout
        self.depth = nn.Parameter(torch.zeros(depth, 2 * params.inner))
        self.w_in = nn.Parameter(uniform(2 * params.inner, 2 * hidden_size))
        self.w_out = nn.Parameter(torch.zeros(hidden_size, params.inner))

    def start(self, hidden: Tensor, embedded: Tensor, rows: tuple[Tensor, Tensor]) -> State:
        return (hidden[rows],)

    def cell(self, state: State, embedded: Tensor, depth: int) -> tuple[State, Tensor]:
        reads = torch.cat([rms(state[0]), embedded], -1)
        gate, up = (functional.linear(reads, self.w_in) + self.depth[depth]).chunk(2, -1)
        inner = functional.dropout(functional.silu(gate) * up, self.dropout, self.training)
        following = state[0] + functional.linear(inner, self.w_out)
        return (following,), following
