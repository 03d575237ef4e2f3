"""Linear layers packed once at load for the CPU (oneDNN's blocked layout).

Torch's own product reads a weight as it lies, and arranges it again at every call: T(1) of SmolLM2's linear layers in
float32 is about 42 ms on two cores, T(6) 56; packed for eight rows, 23 and 20.
"""

from __future__ import annotations

from typing import Any

import torch

ROWS = 8  # what the layout is chosen for; other numbers of rows run too


class PackedLinear(torch.nn.Module):  # type: ignore[misc]
    """A `Linear` without gradients. It keeps the weight as it was only where others read it (an LM head)."""

    def __init__(self, linear: Any, *, keep: bool) -> None:
        super().__init__()
        self.in_features, self.out_features = linear.in_features, linear.out_features
        self.bias = linear.bias
        if keep:
            self.weight = linear.weight
        with torch.inference_mode():
            self._packed = torch.ops.mkldnn._reorder_linear_weight(linear.weight.detach(), ROWS)

    def forward(self, x: Any) -> Any:
        return torch.ops.mkldnn._linear_pointwise(x, self._packed, self.bias, "none", [], "")


def pack_linears(model: Any) -> int:
    """Pack the float32 layers of a model on the CPU, in place; how many. None where torch comes without oneDNN."""
    if not torch.backends.mkldnn.is_available() or not hasattr(torch.ops.mkldnn, "_reorder_linear_weight"):
        return 0
    head = model.get_output_embeddings()
    found = [
        (parent, name, child)
        for parent in model.modules()
        for name, child in parent.named_children()
        if type(child) is torch.nn.Linear and child.weight.dtype == torch.float32 and child.weight.device.type == "cpu"
    ]
    for parent, name, child in found:
        setattr(parent, name, PackedLinear(child, keep=child is head))
    return len(found)
