"""Hyperparameters of the family `ssm` and the names and shapes of its tensors."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from medusakit.artifact.schema import DrafterConfig
from medusakit.drafters.params import read_params

FAMILY = "ssm"


class SsmParams(BaseModel):
    """What `drafter.params` of an artifact holds for this family. memory: channels of the recurrence."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    memory: int = Field(896, ge=1)


def ssm_params(config: DrafterConfig) -> SsmParams:
    """Validated hyperparameters. Raises ArtifactError naming the bad key or value."""
    return read_params(SsmParams, config)


def tensor_shapes(config: DrafterConfig, hidden_size: int) -> dict[str, tuple[int, ...]]:
    """Every tensor of the artifact with its shape ([out, in] for matrices)."""
    memory = ssm_params(config).memory
    shapes: dict[str, tuple[int, ...]] = {
        "depth": (config.depth, 3 * memory),
        "w_in": (3 * memory, 2 * hidden_size),
        "skip": (memory,),
        "w_out": (hidden_size, memory),
    }
    if config.draft_vocab_size:
        shapes["draft_ids"] = (config.draft_vocab_size,)
    return shapes
