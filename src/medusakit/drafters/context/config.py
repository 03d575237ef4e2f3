"""Hyperparameters of the family `context` and the names and shapes of its tensors."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from medusakit.artifact.schema import DrafterConfig
from medusakit.drafters.params import read_params

FAMILY = "context"
HEAD_SIZE = 64


class ContextParams(BaseModel):
    """What `drafter.params` of an artifact holds for this family.

    heads   attention heads, HEAD_SIZE wide each
    inner   width of the gated layer
    window  positions of the answer that are seen, the newest included
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    heads: int = Field(4, ge=1)
    inner: int = Field(1280, ge=1)
    window: int = Field(256, ge=2, le=65_536)

    @property
    def width(self) -> int:
        """Of queries, keys and values."""
        return self.heads * HEAD_SIZE


def context_params(config: DrafterConfig) -> ContextParams:
    """Validated hyperparameters. Raises ArtifactError naming the bad key or value."""
    return read_params(ContextParams, config)


def tensor_shapes(config: DrafterConfig, hidden_size: int) -> dict[str, tuple[int, ...]]:
    """Every tensor of the artifact with its shape ([out, in] for matrices)."""
    params = context_params(config)
    shapes: dict[str, tuple[int, ...]] = {
        "depth": (config.depth, 2 * params.inner),
        "log_slope": (params.heads,),
        "w_qkv": (3 * params.width, 2 * hidden_size),
        "w_in": (2 * params.inner, 2 * hidden_size),
        "w_found": (2 * params.inner, params.width),
        "w_out": (hidden_size, params.inner),
    }
    if config.draft_vocab_size:
        shapes["draft_ids"] = (config.draft_vocab_size,)
    return shapes
