"""Linear layers packed for the CPU (oneDNN's blocked layout), and given back.

Torch's own product reads a weight as it lies, and arranges it again at every call: T(1) of SmolLM2's linear layers in
float32 is about 42 ms on two cores, T(6) 56; packed for eight rows, 23 and 20.

A packed layer holds its weight once, in the other layout. Whoever wants more of it than its product without gradients
(its weight, training, autocast, another dtype or device, a copy) gets an ordinary `Linear`: the same module and
parameter, with the same bits. `state_dict` gives the weights and leaves the layers packed.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import torch

ROWS = 8  # what the layout is chosen for; other numbers of rows run too


class PackedLinear(torch.nn.Linear):  # type: ignore[misc]
    """A `Linear` while it is packed. Its parameter is then a placeholder of the same shape, all NaN, without memory of
    its own; where others read the weight (`_kept`: an LM head, which may be the embedding too) it stays as it is."""

    _packed: Any
    _kept: bool

    def forward(self, x: Any) -> Any:
        packed, weight = vars(self).get("_packed"), self._parameters["weight"]
        trains = torch.is_grad_enabled() and (x.requires_grad or weight.requires_grad)
        if packed is None or trains or torch.is_autocast_enabled("cpu"):
            return _unpack(self)(x)
        return torch.ops.mkldnn._linear_pointwise(x, packed, self.bias, "none", [], "")

    @property
    def weight(self) -> Any:
        return self._parameters["weight"] if self._kept else _unpack(self)._parameters["weight"]

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "weight":
            setattr(_unpack(self), name, value)
        else:
            super().__setattr__(name, value)

    def train(self, mode: bool = True) -> Any:
        return _unpack(self).train(mode) if mode else super().train(mode)

    def _apply(self, *args: Any, **kwargs: Any) -> Any:
        return _unpack(self)._apply(*args, **kwargs)

    def _load_from_state_dict(self, *args: Any, **kwargs: Any) -> None:
        _unpack(self)._load_from_state_dict(*args, **kwargs)

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        if not self._kept:
            destination[f"{prefix}weight"] = self._packed.to_dense()

    def __reduce_ex__(self, protocol: Any) -> Any:
        return _unpack(self).__reduce_ex__(protocol)


def pack_linears(model: Any) -> int:
    """Pack the float32 layers of a model on the CPU, in place; how many were not packed yet. None of a model that
    trains, nor where torch comes without oneDNN."""
    if model.training or not torch.backends.mkldnn.is_available() or not hasattr(torch.ops.mkldnn, "_linear_pointwise"):
        return 0
    found = [module for module in model.modules() if _packable(module)]
    shared = _shared(model)
    for linear in found:
        _pack(linear, kept=linear.weight.data_ptr() in shared)
    return len(found)


def unpack_linears(model: Any) -> int:
    """Make a model's packed layers ordinary ones again; how many."""
    found = [module for module in model.modules() if type(module) is PackedLinear]
    for linear in found:
        _unpack(linear)
    return len(found)


def _packable(module: Any) -> bool:
    """A `Linear` with its own product and a plain parameter: quantised weights may call themselves float32."""
    if type(module) is not torch.nn.Linear or "forward" in vars(module) or not _plain(module):
        return False
    weight = module.weight
    return bool(weight.dtype == torch.float32 and weight.device.type == "cpu" and weight.numel())


def _plain(module: Any) -> bool:
    return type(module._parameters.get("weight")) is torch.nn.Parameter


def _shared(model: Any) -> set[int]:
    """Addresses of weights that are read elsewhere too: tied ones, and the LM head's."""
    count = Counter(module._parameters["weight"].data_ptr() for module in model.modules() if _plain(module))
    head = model.get_output_embeddings()
    heads = {head._parameters["weight"].data_ptr()} if head is not None and _plain(head) else set()
    return heads | {address for address, times in count.items() if times > 1}


def _pack(linear: Any, *, kept: bool) -> None:
    weight = linear.weight
    with torch.inference_mode(False), torch.no_grad():
        packed = torch.ops.mkldnn._reorder_linear_weight(weight.detach(), ROWS)
    vars(linear).update(_packed=packed, _kept=kept)
    linear.__class__ = PackedLinear
    if not kept:
        weight.data = torch.full((1,), torch.nan).expand(weight.shape)


def _unpack(linear: Any) -> Any:
    """The layer itself, an ordinary one. In this order, since another thread may be in its `forward`."""
    packed = vars(linear).get("_packed")
    if packed is not None:
        if not linear._kept:
            with torch.inference_mode(False), torch.no_grad():
                linear._parameters["weight"].data = packed.to_dense()
        linear.__class__ = torch.nn.Linear
        vars(linear).pop("_packed", None)
        vars(linear).pop("_kept", None)
    return linear
