"""What a hooked model is, so that a change of it is seen.

Trees were tried on a kind of model, and kept KV was made of its weights.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

_ADAPTER = ("_active_adapter", "_disable_adapters", "merged_adapters", "scaling")  # of a layer of peft's


@dataclass(frozen=True, slots=True)
class Kind:
    """After a change of it, nothing that was found about the model's passes holds."""

    dtype: Any
    device: Any
    head: Any

    @classmethod
    def of(cls, model: Any) -> Kind:
        embedding = model.get_input_embeddings().weight
        return cls(embedding.dtype, embedding.device, model.get_output_embeddings())


def weights_stamp(model: Any) -> Hashable:
    """Another value after weights were written to, loaded, replaced or merged, or adapters switched. Cheap: it reads no
    weight, but where each lies and how often it was written to."""
    weights = tuple((value.data_ptr(), 0 if value.is_inference() else value._version) for value in model.parameters())
    adapters = tuple(
        tuple(repr(vars(module).get(name)) for name in _ADAPTER)
        for module in model.modules()
        if "_disable_adapters" in vars(module)
    )
    return weights, adapters
