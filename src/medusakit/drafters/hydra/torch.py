"""The recurrent drafter as a torch module: for training, and the oracle of the ONNX graph's tests."""

from __future__ import annotations

from collections.abc import Generator
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from medusakit.drafters.hydra.config import HydraParams

_FAR = -1e9


def rms(x: Tensor) -> Tensor:
    """Rows scaled to mean square one (no weights)."""
    return x * torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + 1e-6).to(x.dtype)


class HydraNet(nn.Module):  # type: ignore[misc]  # torch is not typed for mypy here
    """A cell that is applied once per depth, with the same weights.

    s_0 = h_t, the backbone's hidden state at the last accepted position. At depth k the cell reads the state, the token
    drafted last (the root at k = 0) and what `context_heads` find in the answer so far:

        y = [rms(s_k); rms(e(token_k))]          c = attention(Wq y; slots up to t)
        s_{k+1} = s_k + W_out (SiLU(g) * u)      [g; u] = W_in [y; c] + depth_k

    Logits are the LM head's rows times s_{k+1}; W_out starts at zero, so an untrained cell repeats it.
    A slot j of the answer is [rms(h_j); rms(e(x_j)); rms(e(x_{j+1}))]: what the backbone thought, after what, and what
    came. Hydra's prefix attention (2402.05109) looks once per step; here each depth looks with its own query, which
    costs one small product.
    """

    def __init__(self, params: HydraParams, depth: int, hidden_size: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.params, self.max_depth, self.dropout = params, depth, dropout
        width = params.context_width
        self.depth = nn.Parameter(torch.zeros(depth, 2 * params.inner))
        self.w_in = _matrix(2 * params.inner, 2 * hidden_size + width)
        self.w_out = nn.Parameter(torch.zeros(hidden_size, params.inner))
        if width:
            self.context = nn.ParameterDict(
                {
                    "query": _matrix(width, 2 * hidden_size),
                    "key": _matrix(width, 3 * hidden_size),
                    "value": nn.Parameter(torch.zeros(width, 3 * hidden_size)),
                    "slope": nn.Parameter(0.02 * 4.0 ** -torch.arange(params.context_heads)),
                }
            )

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
        memory = self._remember(hidden, embedded) if self.params.context_width else None
        state = hidden[answer, row]
        for depth in range(self.max_depth):
            token = (row + 1 + depth).clamp(max=embedded.shape[1] - 1)
            reads = torch.cat([rms(state), embedded[answer, token]], -1)
            if memory is not None:
                reads = torch.cat([reads, self._look_back(reads, memory, (answer, row))], -1)
            gate, up = (functional.linear(reads, self.w_in) + self.depth[depth]).chunk(2, -1)
            inner = functional.dropout(functional.silu(gate) * up, self.dropout, self.training)
            state = state + functional.linear(inner, self.w_out)
            going_on = yield state
            if going_on is not None:
                state, answer, row = state[going_on], answer[going_on], row[going_on]

    def _remember(self, hidden: Tensor, embedded: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Keys and values [B, heads, T, dim] of all slots, and the score bias [heads, T, T]."""
        slots = torch.cat([rms(hidden), embedded[:, :-1], embedded[:, 1:]], -1)
        keys, values = (self._heads(functional.linear(slots, self._part(name))) for name in ("key", "value"))
        places = torch.arange(hidden.shape[1])
        distance = (places[:, None] - places[None, :]).float()
        visible = (distance >= 0) & (distance < self.params.window)
        bias = -distance * self._part("slope").abs()[:, None, None]
        return keys, values, torch.where(visible, bias, torch.tensor(_FAR))

    def _look_back(self, reads: Tensor, memory: tuple[Tensor, Tensor, Tensor], rows: tuple[Tensor, Tensor]) -> Tensor:
        """[N, width]: what the heads find for each place."""
        keys, values, bias = memory
        query = functional.linear(reads, self._part("query"))
        padded = query.new_zeros(keys.shape[0], keys.shape[2], query.shape[-1]).index_put(rows, query)
        found = functional.scaled_dot_product_attention(
            self._heads(padded), keys.to(query.dtype), values.to(query.dtype), attn_mask=bias[None].to(query.dtype)
        )
        return found.transpose(1, 2).flatten(2)[rows]

    def _heads(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (self.params.context_heads, self.params.context_dim)).transpose(1, 2)

    def _part(self, name: str) -> Tensor:
        return cast(Tensor, self.context[name])


def _matrix(out: int, reads: int) -> nn.Parameter:
    weight = torch.empty(out, reads)
    nn.init.uniform_(weight, -(reads**-0.5), reads**-0.5)
    return nn.Parameter(weight)
