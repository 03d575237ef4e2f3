"""Packed layers compute what they were packed from, whatever the number of rows; what is not a plain float32 layer of
the CPU stays as it is; and whoever wants more than the product gets an ordinary layer, to the bit.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn.functional import linear

from medusakit.runtimes.torch.pack import PackedLinear, pack_linears, unpack_linears


class Twice(torch.nn.Linear):
    """A layer with a product of its own."""

    def forward(self, x: torch.Tensor) -> Any:
        return 2 * super().forward(x)


class Small(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = torch.nn.Embedding(40, 32)
        self.inner = torch.nn.Sequential(torch.nn.Linear(32, 48), torch.nn.SiLU(), torch.nn.Linear(48, 32, bias=False))
        self.coarse = torch.nn.Linear(32, 32, dtype=torch.bfloat16)
        self.own = Twice(32, 32)
        self.lm_head = torch.nn.Linear(32, 40, bias=False)
        self.lm_head.weight = self.embed.weight

    def get_output_embeddings(self) -> Any:
        return self.lm_head

    def forward(self, x: torch.Tensor) -> Any:
        return self.lm_head(self.own(self.inner(x)))


@pytest.fixture
def model() -> Small:
    torch.manual_seed(0)
    return Small().eval()


@torch.inference_mode()
def test_packing_changes_nothing_but_the_layout(model: Small) -> None:
    inputs = [torch.randn(1, rows, 32) for rows in (1, 2, 7, 8, 33)]
    before = [model(x) for x in inputs]
    embedding = model.embed.weight
    assert pack_linears(model) == 3
    assert isinstance(model.inner[0], PackedLinear) and isinstance(model.lm_head, PackedLinear)
    assert model.lm_head.weight is embedding  # read by others, so it stays, and the layer stays packed
    assert isinstance(model.lm_head, PackedLinear)
    assert type(model.coarse) is torch.nn.Linear and type(model.own) is Twice
    for x, expected in zip(inputs, before, strict=True):
        torch.testing.assert_close(model(x), expected, atol=1e-5, rtol=0)
    assert isinstance(model.inner[0], PackedLinear) and pack_linears(model) == 0


@torch.inference_mode()
def test_the_weight_is_held_once_and_the_state_is_the_models_own(model: Small) -> None:
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    parameters = dict(model.named_parameters())
    pack_linears(model)
    assert parameters["inner.0.weight"].untyped_storage().nbytes() <= 4
    assert {name: tensor.shape for name, tensor in model.named_parameters()} == {
        name: before[name].shape for name in parameters
    }
    state = model.state_dict()
    assert list(state) == list(before)
    assert all(torch.equal(state[name], before[name]) for name in before)
    assert isinstance(model.inner[0], PackedLinear)  # saving takes nothing back
    assert unpack_linears(model) == 3 and unpack_linears(model) == 0
    assert all(now is parameters[name] and torch.equal(now, before[name]) for name, now in model.named_parameters())
    assert not any(name in vars(model.inner[0]) for name in ("_packed", "_kept"))


def gradient(model: Small) -> Any:
    return model(torch.ones(1, 32)).sum().backward()


def assign(model: Small) -> None:
    model.inner[0].weight = torch.nn.Parameter(model.inner[0].weight.detach().clone())


@pytest.mark.parametrize(
    "use",
    [
        gradient,
        assign,
        lambda model: linear(torch.ones(1, 32), model.inner[0].weight),
        lambda model: model.train(),
        lambda model: model.half(),
        lambda model: model.to(torch.float64),
        lambda model: model.load_state_dict(model.state_dict()),
        copy.deepcopy,
    ],
)
def test_other_uses_get_an_ordinary_layer_of_the_same_values(model: Small, use: Callable[[Small], Any]) -> None:
    plain, layer, parameter = copy.deepcopy(model), model.inner[0], model.inner[0].weight
    pack_linears(model)
    expected, found = use(plain), use(model)
    assert model.inner[0] is layer and type(layer) is torch.nn.Linear
    assert layer.weight is parameter or use is assign
    assert torch.equal(layer.weight, plain.inner[0].weight)
    assert use is not gradient or torch.allclose(parameter.grad, plain.inner[0].weight.grad, atol=1e-5)
    if isinstance(found, torch.Tensor):
        assert torch.equal(found, expected)


def test_a_model_that_trains_is_not_packed(model: Small) -> None:
    assert pack_linears(model.train()) == 0
    assert pack_linears(model.eval()) == 3
    model.train()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    before = model.inner[0].weight.detach().clone()
    gradient(model)
    optimizer.step()
    after = model.inner[0].weight.detach().clone()
    assert not torch.equal(after, before)
    model.eval()
    assert pack_linears(model) == 3  # anew, of what was learnt
    assert torch.equal(model.state_dict()["inner.0.weight"], after)


def test_hooks_and_products_of_others_stay(model: Small) -> None:
    seen: list[int] = []
    model.inner[0].register_forward_hook(lambda *_: seen.append(1))
    model.inner[2].forward = lambda x: x[..., :32]  # type: ignore[method-assign]
    assert pack_linears(model) == 2
    with torch.no_grad():
        model(torch.ones(1, 32))
    assert seen and type(model.inner[2]) is torch.nn.Linear
