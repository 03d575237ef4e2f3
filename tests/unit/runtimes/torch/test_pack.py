"""Packed layers compute what they were packed from, whatever the number of rows; what is not float32 stays."""

from __future__ import annotations

from typing import Any

import torch

from medusakit.runtimes.torch.pack import PackedLinear, pack_linears


class Small(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = torch.nn.Sequential(torch.nn.Linear(32, 48), torch.nn.SiLU(), torch.nn.Linear(48, 32, bias=False))
        self.coarse = torch.nn.Linear(32, 32, dtype=torch.bfloat16)
        self.lm_head = torch.nn.Linear(32, 40, bias=False)

    def get_output_embeddings(self) -> Any:
        return self.lm_head

    def forward(self, x: torch.Tensor) -> Any:
        return self.lm_head(self.inner(x))


@torch.inference_mode()
def test_packing_changes_nothing_but_the_layout() -> None:
    torch.manual_seed(0)
    model, inputs = Small(), [torch.randn(1, rows, 32) for rows in (1, 2, 7, 8, 33)]
    before = [model(x) for x in inputs]
    head = model.lm_head.weight
    assert pack_linears(model) == 3
    assert isinstance(model.lm_head, PackedLinear) and model.lm_head.weight is head  # drafters read it
    assert not hasattr(model.inner[0], "weight") and type(model.coarse) is torch.nn.Linear
    for x, expected in zip(inputs, before, strict=True):
        torch.testing.assert_close(model(x), expected, atol=1e-5, rtol=0)
    assert pack_linears(model) == 0
