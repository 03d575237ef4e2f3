"""Hyperparameters of the family `hydra` and the names and shapes of its tensors."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from medusakit.artifact.schema import DrafterConfig
from medusakit.drafters.params import read_params

FAMILY = "hydra"


class HydraParams(BaseModel):
    """What `drafter.params` of an artifact holds for this family. inner: width of the gated layer."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    inner: int = Field(1280, ge=1)


def hydra_params(config: DrafterConfig) -> HydraParams:
    """Validated hyperparameters. Raises ArtifactError naming the bad key or value."""
    return read_params(HydraParams, config)


def tensor_shapes(config: DrafterConfig, hidden_size: int) -> dict[str, tuple[int, ...]]:
    """Every tensor of the artifact with its shape ([out, in] for matrices)."""
    inner = hydra_params(config).inner
    shapes: dict[str, tuple[int, ...]] = {
        "depth": (config.depth, 2 * inner),
        "w_in": (2 * inner, 2 * hidden_size),
        "w_out": (hidden_size, inner),
    }
    if config.draft_vocab_size:
        shapes["draft_ids"] = (config.draft_vocab_size,)
    return shapes
