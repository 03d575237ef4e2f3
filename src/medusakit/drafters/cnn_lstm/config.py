"""Hyperparameters of the family `cnn_lstm` and the names and shapes of its tensors."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from medusakit.artifact.schema import DrafterConfig
from medusakit.drafters.params import read_params

FAMILY = "cnn_lstm"


class CnnLstmParams(BaseModel):
    """What `drafter.params` of an artifact holds for this family.

    window  positions that the convolution sees, the newest included
    cell    width of the LSTM
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    window: int = Field(4, ge=2, le=65_536)
    cell: int = Field(512, ge=1)


def cnn_lstm_params(config: DrafterConfig) -> CnnLstmParams:
    """Validated hyperparameters. Raises ArtifactError naming the bad key or value."""
    return read_params(CnnLstmParams, config)


def tensor_shapes(config: DrafterConfig, hidden_size: int) -> dict[str, tuple[int, ...]]:
    """Every tensor of the artifact with its shape ([out, in] for matrices)."""
    params = cnn_lstm_params(config)
    shapes: dict[str, tuple[int, ...]] = {
        "kernel": (params.window, 2 * hidden_size),
        "kernel_bias": (2 * hidden_size,),
        "w_start": (2 * params.cell, 2 * hidden_size),
        "w_token": (4 * params.cell, hidden_size),
        "w_cell": (4 * params.cell, params.cell),
        "depth": (config.depth, 4 * params.cell),
        "w_out": (hidden_size, params.cell),
    }
    if config.draft_vocab_size:
        shapes["draft_ids"] = (config.draft_vocab_size,)
    return shapes
