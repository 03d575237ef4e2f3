"""How a drafter is trained: everything that shapes the result, so that equal settings and data give equal heads."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from medusakit.artifact.schema import DrafterConfig


class HeadsConfig(BaseModel):
    """Settings of the stage `heads`.

    family, depth, params  the drafter, see drafters/<family>/config.py
    draft_vocab     ids that the drafter may say; 0: the full vocabulary
    max_tokens      train on at most so many tokens of answers, drawn at random; 0: all
    epochs          passes over the training answers
    batch_rows      rows of a step, in whole answers
    decay           weight of depth k is decay ** k (Medusa, section 2.2.1)
    survival        least probability of a label for its place to be trained at the next depth too: 0 trains all
    hard            share of the written token in the target; the rest is the backbone's distribution (losses.py)
    top             ids of that distribution that are kept
    averaging       decay of the moving average of the weights, which is what is saved; 0: the last weights
    held_out        share of conversations kept apart for calibration
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    family: str = "hydra"
    depth: int = Field(5, ge=1)
    params: dict[str, Any] = Field(default_factory=dict)
    draft_vocab: int = Field(8192, ge=0)
    max_tokens: int = Field(default=0, ge=0)
    epochs: float = Field(3.0, gt=0)
    batch_rows: int = Field(500, ge=1)
    learning_rate: float = Field(2e-3, gt=0)
    warmup_steps: int = Field(40, ge=0)
    final_rate: float = Field(0.02, ge=0, le=1, description="share of the learning rate at the end of the cosine")
    weight_decay: float = Field(0.01, ge=0)
    clip_norm: float = Field(1.0, gt=0)
    dropout: float = Field(0.1, ge=0, lt=1)
    decay: float = Field(0.8, gt=0, le=1)
    survival: float = Field(0.01, ge=0, lt=1)
    hard: float = Field(0.5, ge=0, le=1)
    top: int = Field(16, ge=1)
    averaging: float = Field(0.998, ge=0, lt=1)
    bf16: bool = True
    held_out: float = Field(0.05, gt=0, lt=1)
    seed: int = Field(default=0, ge=0)

    def drafter(self, vocab_size: int) -> DrafterConfig:
        """The artifact's description of the drafter."""
        size = self.draft_vocab if self.draft_vocab < vocab_size else 0
        return DrafterConfig(family=self.family, depth=self.depth, draft_vocab_size=size, params=self.params)
