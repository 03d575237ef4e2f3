"""The context drafter as a torch module: for training, and the oracle of the ONNX graph's tests."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from medusakit.drafters.context.config import HEAD_SIZE, ContextParams
from medusakit.drafters.recurrent.torch import RecurrentNet, rms, uniform

_CLOSED = -1e9
_FASTEST, _RATIO = 0.5, 0.2  # slopes of the heads' distance penalties at the start: half-lives of 1 to some 200 places


@dataclass(frozen=True, slots=True)
class _Memory:
    """Of all T rows of B answers: keys, values [B, heads, T, HEAD_SIZE]; distance, visible [T, T] of row and column."""

    keys: Tensor
    values: Tensor
    distance: Tensor
    visible: Tensor


class ContextNet(RecurrentNet):
    """One decoder layer with keys and values of its own, applied once per depth with the same weights.

    Position i is y_i = [rms(h_i); rms(e(x_{i+1}))]: what the backbone thought there, and what came. A draft starts with
    s_0 = h_t; at depth k the layer reads its own prediction and the token drafted last (the root at k = 0):

        y = [rms(s_k); rms(e(token_k))],   [q; key; value] = W_qkv y
        c = attention of q over the answer's positions up to t and the draft's own path, this node included
        [g; u] = W_in y + W_found c + depth_k
        s_{k+1} = s_k + W_out (SiLU(g) * u)

    as EAGLE's drafter (2401.15077) does with a layer of the backbone's own kind, but for the residual on h_t. Each head
    subtracts its slope times the distance from its scores (ALiBi, 2108.12409). Logits are the LM head's rows times
    s_{k+1}; W_out starts at zero, so an untrained layer repeats the LM head's guess; W_found starts at zero too, so it
    first learns what needs no looking back.
    """

    def __init__(self, params: ContextParams, depth: int, hidden_size: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.max_depth, self.dropout, self._params = depth, dropout, params
        self.depth = nn.Parameter(torch.zeros(depth, 2 * params.inner))
        self.log_slope = nn.Parameter((_FASTEST * _RATIO ** torch.arange(params.heads)).log())
        self.w_qkv = nn.Parameter(uniform(3 * params.width, 2 * hidden_size))
        self.w_in = nn.Parameter(uniform(2 * params.inner, 2 * hidden_size))
        self.w_found = nn.Parameter(torch.zeros(2 * params.inner, params.width))
        self.w_out = nn.Parameter(torch.zeros(hidden_size, params.inner))

    def forward(
        self, hidden: Tensor, embedded: Tensor, rows: tuple[Tensor, Tensor]
    ) -> Generator[Tensor, Tensor | None, None]:
        """As RecurrentNet.forward; places look back at their answer, so the walk keeps the answers beside its state."""
        memory, (answer, row) = self._remember(hidden, embedded), rows
        state, path = hidden[rows], list[tuple[Tensor, Tensor]]()
        for depth in range(self.max_depth):
            token = (row + 1 + depth).clamp(max=embedded.shape[1] - 1)
            reads = torch.cat([rms(state), embedded[answer, token]], -1)
            query, key, value = self._heads(functional.linear(reads, self.w_qkv))
            if depth:
                path.append((key, value))
            found = self._attend(query, memory, path, (answer, row), depth)
            state = state + self._gated(reads, found, depth)
            going_on = yield state
            if going_on is not None:
                state, answer, row = state[going_on], answer[going_on], row[going_on]
                path = [(keys[going_on], values[going_on]) for keys, values in path]

    def _gated(self, reads: Tensor, found: Tensor, depth: int) -> Tensor:
        mixed = functional.linear(reads, self.w_in) + functional.linear(found, self.w_found) + self.depth[depth]
        gate, up = mixed.chunk(2, -1)
        inner = functional.dropout(functional.silu(gate) * up, self.dropout, self.training)
        return functional.linear(inner, self.w_out)

    def _remember(self, hidden: Tensor, embedded: Tensor) -> _Memory:
        positions = torch.cat([rms(hidden), embedded[:, 1:]], -1)
        _, keys, values = self._heads(functional.linear(positions, self.w_qkv))
        places = torch.arange(hidden.shape[1])
        distance = places[:, None] - places[None, :]
        visible = (distance >= 0) & (distance < self._params.window)
        return _Memory(keys.transpose(1, 2), values.transpose(1, 2), distance.float(), visible)

    def _attend(
        self, query: Tensor, memory: _Memory, path: list[tuple[Tensor, Tensor]], rows: tuple[Tensor, Tensor], depth: int
    ) -> Tensor:
        """[N, width]: what the heads find for N places. query and the path's keys and values [N, heads, HEAD_SIZE]."""
        slope = self.log_slope.exp()
        padded = query.new_zeros(len(memory.keys), memory.keys.shape[2], *query.shape[1:]).index_put(rows, query)
        scores = (padded.transpose(1, 2) @ memory.keys.transpose(2, 3)).float() * HEAD_SIZE**-0.5
        scores = scores - slope[:, None, None] * (memory.distance + depth)
        scores = torch.where(memory.visible, scores, _CLOSED).transpose(1, 2)[rows]  # [N, heads, T]
        own = [(query * key).sum(-1).float() * HEAD_SIZE**-0.5 - slope * (depth - 1 - at)
               for at, (key, _) in enumerate(path)]  # fmt: skip
        weights = torch.softmax(torch.cat([scores, *(one[..., None] for one in own)], -1), -1).to(query.dtype)
        before, after = weights.split([scores.shape[-1], len(own)], -1)
        padded = before.new_zeros(memory.keys.shape[0], scores.shape[-1], *before.shape[1:]).index_put(rows, before)
        found = (padded.transpose(1, 2) @ memory.values.to(query.dtype)).transpose(1, 2)[rows]
        for at, (_, value) in enumerate(path):
            found = found + after[..., at, None] * value
        return found.flatten(1)

    def _heads(self, packed: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Query, key and value [..., heads, HEAD_SIZE] of packed [..., 3 * width]."""
        query, key, value = packed.unflatten(-1, (3, self._params.heads, HEAD_SIZE)).unbind(-3)
        return query, key, value
