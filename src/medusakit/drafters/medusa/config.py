"""Hyperparameters of the family `medusa` and the names and shapes of its tensors."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from medusakit.artifact.schema import DrafterConfig
from medusakit.drafters.params import read_params
from medusakit.errors import ArtifactError

FAMILY = "medusa"
MAX_HEADS = 5
MAX_BLOCKS = 64  # each is a tensor that is looked for


class MedusaParams(BaseModel):
    """What `drafter.params` of an artifact holds for this family.

    blocks      residual blocks of each head, distinct modules
    projection  shared: the rows of the backbone's LM head; own: a matrix per head, started from those rows
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    blocks: int = Field(1, ge=0, le=MAX_BLOCKS)
    projection: Literal["shared", "own"] = "shared"


def medusa_params(config: DrafterConfig) -> MedusaParams:
    """Validated hyperparameters. Raises ArtifactError naming the bad key or value."""
    if config.depth > MAX_HEADS:
        raise ArtifactError(f"medusa: depth = {config.depth}: from 1 to {MAX_HEADS} heads", hint=f"depth = {MAX_HEADS}")
    return read_params(MedusaParams, config)


def tensor_shapes(config: DrafterConfig, hidden_size: int) -> dict[str, tuple[int, ...]]:
    """Every tensor of the artifact with its shape ([out, in] for matrices; heads are stacked in front)."""
    params = medusa_params(config)
    shapes: dict[str, tuple[int, ...]] = {}
    if config.draft_vocab_size:
        shapes["draft_ids"] = (config.draft_vocab_size,)
    for block in range(params.blocks):
        shapes[f"blocks.{block}.weight"] = (config.depth, hidden_size, hidden_size)
        shapes[f"blocks.{block}.bias"] = (config.depth, hidden_size)
    if params.projection == "own":
        shapes["projection"] = (config.depth, config.draft_vocab_size, hidden_size)
    return shapes
