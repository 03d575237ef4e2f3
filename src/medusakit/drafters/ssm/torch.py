"""The state-space drafter as a torch module: for training, and the oracle of the ONNX graph's tests."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from medusakit.drafters.recurrent.torch import RecurrentNet, State, rms, uniform
from medusakit.drafters.ssm.config import SsmParams

_FIRST, _LAST = -1.0, 5.0  # logits of the decays at the start: memories of one position to about 150


class SsmNet(RecurrentNet):
    """A diagonal linear recurrence with input-dependent decay (as in Mamba, 2312.00752, and minGRU, 2410.01201) along
    the sequence, and on along every path of the draft.

    With y the prediction (h_i at a committed position i) and the token at i + 1, one position does

        [a; v; g] = W_in [rms(y); rms(e(token))] + depth_k,   keep = sigmoid(a)
        m' = keep * m + (1 - keep) * v
        y' = y + W_out (SiLU(g) * (m' + skip * v))

    Committed positions run with k = 0 and their true hidden states, from m = 0 at the last prompt position on; a draft
    goes on from there with its own tokens and predictions. Logits are the LM head's rows times y'; W_out starts at
    zero, so an untrained cell repeats the LM head's guess.
    """

    def __init__(self, params: SsmParams, depth: int, hidden_size: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.max_depth, self.dropout = depth, dropout
        shifts = torch.zeros(depth, 3, params.memory)
        shifts[:, 0] = torch.linspace(_FIRST, _LAST, params.memory)
        self.depth = nn.Parameter(shifts.flatten(1))
        self.w_in = nn.Parameter(uniform(3 * params.memory, 2 * hidden_size))
        self.skip = nn.Parameter(torch.ones(params.memory))
        self.w_out = nn.Parameter(torch.zeros(hidden_size, params.memory))

    def start(self, hidden: Tensor, embedded: Tensor, rows: tuple[Tensor, Tensor]) -> State:
        decay, value, _ = self._mixed(hidden, embedded[:, 1:], 0)
        after = linear_scan(torch.sigmoid(decay), torch.sigmoid(-decay) * value)
        before = functional.pad(after, (0, 0, 1, -1))  # the position itself is read by the draft's first step
        return before[rows], hidden[rows]

    def cell(self, state: State, embedded: Tensor, depth: int) -> tuple[State, Tensor]:
        memory, predicted = state
        decay, value, gate = self._mixed(predicted, embedded, depth)
        memory = torch.sigmoid(decay) * memory + torch.sigmoid(-decay) * value
        inner = functional.silu(gate) * (memory + self.skip * value)
        inner = functional.dropout(inner, self.dropout, self.training)
        predicted = predicted + functional.linear(inner, self.w_out)
        return (memory, predicted), predicted

    def _mixed(self, predicted: Tensor, embedded: Tensor, depth: int) -> tuple[Tensor, Tensor, Tensor]:
        reads = torch.cat([rms(predicted), embedded], -1)
        decay, value, gate = (functional.linear(reads, self.w_in).float() + self.depth[depth]).chunk(3, -1)
        return decay, value, gate


def linear_scan(keep: Tensor, added: Tensor) -> Tensor:
    """s_i = keep_i * s_{i-1} + added_i along dimension 1, from zero: [B, T, w] in log2(T) passes of doubling reach."""
    reach = 1
    while reach < keep.shape[1]:
        later = keep[:, reach:]
        added = torch.cat([added[:, :reach], added[:, reach:] + later * added[:, :-reach]], 1)
        keep = torch.cat([keep[:, :reach], later * keep[:, :-reach]], 1)
        reach *= 2
    return added
