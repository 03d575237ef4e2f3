"""The convolution and LSTM as a torch module: for training, and the oracle of the ONNX graph's tests."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from medusakit.drafters.cnn_lstm.config import CnnLstmParams
from medusakit.drafters.recurrent.torch import RecurrentNet, State, rms, uniform


class CnnLstmNet(RecurrentNet):
    """A convolution over the newest positions starts an LSTM that runs over the draft's depths.

    Position i is p_i = [rms(h_i); rms(e(x_{i+1}))], zero before the last prompt position; p_t holds h_t and the root.
    With a separable convolution (one weight per channel and offset, then one matrix):

        [a; c_0] = W_start SiLU(b + sum_{j < window} kernel_j * p_{t - window + 1 + j}),   m_0 = tanh(a)

    At depth k the LSTM (Hochreiter and Schmidhuber 1997) reads the token drafted last (the root at k = 0):

        [i; f; g; o] = W_token rms(e(token_k)) + W_cell m_k + depth_k
        c_{k+1} = sigmoid(f) * c_k + sigmoid(i) * tanh(g),   m_{k+1} = sigmoid(o) * tanh(c_{k+1})

    Logits are the LM head's rows times h_t + W_out m_{k+1}; W_out starts at zero, so an untrained cell repeats the LM
    head's guess. Forget gates start open.
    """

    def __init__(self, params: CnnLstmParams, depth: int, hidden_size: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.max_depth, self.dropout, self._window = depth, dropout, params.window
        newest = torch.zeros(params.window, 2 * hidden_size)
        newest[-1] = 1.0
        self.kernel = nn.Parameter(newest)
        self.kernel_bias = nn.Parameter(torch.zeros(2 * hidden_size))
        self.w_start = nn.Parameter(uniform(2 * params.cell, 2 * hidden_size))
        self.w_token = nn.Parameter(uniform(4 * params.cell, hidden_size))
        self.w_cell = nn.Parameter(uniform(4 * params.cell, params.cell))
        gates = torch.zeros(depth, 4, params.cell)
        gates[:, 1] = 1.0
        self.depth = nn.Parameter(gates.flatten(1))
        self.w_out = nn.Parameter(torch.zeros(hidden_size, params.cell))

    def start(self, hidden: Tensor, embedded: Tensor, rows: tuple[Tensor, Tensor]) -> State:
        positions = torch.cat([rms(hidden), embedded[:, 1:]], -1)
        padded = functional.pad(positions, (0, 0, self._window - 1, 0))
        length = hidden.shape[1]
        mixed = self.kernel_bias + sum(
            padded[:, offset : offset + length] * weight for offset, weight in enumerate(self.kernel)
        )
        begun = functional.linear(functional.silu(mixed[rows]), self.w_start)
        output, memory = begun.chunk(2, -1)
        return torch.tanh(output), memory, hidden[rows]

    def cell(self, state: State, embedded: Tensor, depth: int) -> tuple[State, Tensor]:
        output, memory, base = state
        mixed = functional.linear(embedded, self.w_token) + functional.linear(output, self.w_cell) + self.depth[depth]
        let_in, keep, new, let_out = mixed.chunk(4, -1)
        memory = torch.sigmoid(keep) * memory + torch.sigmoid(let_in) * torch.tanh(new)
        output = torch.sigmoid(let_out) * torch.tanh(memory)
        dropped = functional.dropout(output, self.dropout, self.training)
        return (output, memory, base), base + functional.linear(dropped, self.w_out)
