"""Hyperparameters of the family `hydra` and the names and shapes of its tensors."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from medusakit.artifact.schema import DrafterConfig
from medusakit.errors import ArtifactError

FAMILY = "hydra"


class HydraParams(BaseModel):
    """What `drafter.params` of an artifact holds for this family.

    inner          width of the gated layer
    context_heads  heads that look back at the answer so far; 0: none
    context_dim    width of one such head
    window         positions they look back at most
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    inner: int = Field(1024, ge=1)
    context_heads: int = Field(4, ge=0)
    context_dim: int = Field(64, ge=1)
    window: int = Field(128, ge=1)

    @property
    def context_width(self) -> int:
        return self.context_heads * self.context_dim


def hydra_params(config: DrafterConfig) -> HydraParams:
    """Validated hyperparameters. Raises ArtifactError naming the bad key or value."""
    try:
        return HydraParams.model_validate(config.params)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(part) for part in first["loc"])
        known = ", ".join(HydraParams.model_fields)
        raise ArtifactError(
            f"hydra: params.{key} = {first.get('input')!r}: {first['msg']}", hint=f"known parameters: {known}"
        ) from error


def tensor_shapes(config: DrafterConfig, hidden_size: int) -> dict[str, tuple[int, ...]]:
    """Every tensor of the artifact with its shape ([out, in] for matrices)."""
    params = hydra_params(config)
    width, reads = params.context_width, 2 * hidden_size + params.context_width
    shapes: dict[str, tuple[int, ...]] = {"draft_ids": (config.draft_vocab_size,)} if config.draft_vocab_size else {}
    shapes |= {
        "depth": (config.depth, 2 * params.inner),
        "w_in": (2 * params.inner, reads),
        "w_out": (hidden_size, params.inner),
    }
    if width:
        shapes |= {
            "context.query": (width, 2 * hidden_size),
            "context.key": (width, 3 * hidden_size),
            "context.value": (width, 3 * hidden_size),
            "context.slope": (params.context_heads,),
        }
    return shapes
