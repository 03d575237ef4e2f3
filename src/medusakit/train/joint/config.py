"""How heads and backbone are trained together: Medusa-2 (2401.10774, section 2.2.2), and the naive way beside it."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

LAMBDA = {"distill": 0.01, "data": 0.2}


class QualityConfig(BaseModel):
    """What the quality report measures, on held-out conversations; half of them grow the trees, the others are asked.

    prompts         conversations that are decoded, and of which perplexity and agreement are taken
    max_new_tokens  of an answer
    budget          rows of a verify pass, root included, the same for all heads
    naive           train the naive way too, on `naive_tokens` tokens of the same answers (0: as many)
    tasks           score a small fixed set of questions with lm-eval
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    prompts: int = Field(40, ge=1)
    max_new_tokens: int = Field(128, ge=2)
    budget: int = Field(16, ge=2)
    naive: bool = True
    naive_tokens: int = Field(0, ge=0)
    tasks: bool = True


class JointConfig(BaseModel):
    """Settings of the stage `joint`. Heads, held-out share, tokens and seed are those of [heads].

    objective      of the backbone: distill, KL to the model as it was; data, cross entropy on its written answers
    teacher        stored: the model's states that came with the answers, which are those of the adapter switched off;
                   computed: a pass with the adapter off in every step (half as slow again)
    stages         2: heads alone first, then both; 1: both from the start
    lambda0        weight of the heads' loss beside the backbone's; None: 0.01 to distill, 0.2 on data
    ramp           sine: that weight grows as sin(pi/2 * step / steps)
    rank, alpha    of the adapter on every linear layer but the LM head, which heads and embedding share
    learning_rate  of the backbone; heads take `head_rate` times as much
    batch_tokens   positions of a step, prompts included
    averaging      decay of the moving average of what is trained, which is what is kept
    bf16           products in bfloat16; weights, sums and adapter stay float32
    quantised      the backbone in 4-bit NF4 by bitsandbytes, on CUDA (QLoRA)
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    objective: Literal["distill", "data"] = "distill"
    teacher: Literal["stored", "computed"] = "stored"
    stages: Literal[1, 2] = 2
    lambda0: float | None = Field(default=None, ge=0)
    ramp: Literal["sine", "none"] | None = None
    rank: int = Field(32, ge=1)
    alpha: float = Field(16.0, gt=0)
    dropout: float = Field(0.0, ge=0, lt=1)
    learning_rate: float = Field(5e-4, gt=0)
    head_rate: float = Field(4.0, gt=0)
    warmup_steps: int = Field(40, ge=0)
    final_rate: float = Field(0.02, ge=0, le=1)
    epochs: int = Field(1, ge=1)
    batch_tokens: int = Field(2048, ge=1)
    weight_decay: float = Field(0.0, ge=0)
    clip_norm: float = Field(1.0, gt=0)
    averaging: float = Field(0.98, ge=0, lt=1)
    bf16: bool = True
    quantised: bool = False
    quality: QualityConfig = Field(default_factory=lambda: QualityConfig.model_validate({}))

    @property
    def heads_weight(self) -> float:
        return LAMBDA[self.objective] if self.lambda0 is None else self.lambda0

    @property
    def has_ramp(self) -> bool:
        return self.objective == "distill" if self.ramp is None else self.ramp == "sine"

    def naive(self) -> JointConfig:
        """Joint tuning without the paper's care: from the start, one rate (the heads'), no warm-up, cross entropy."""
        changes = {"objective": "data", "stages": 1, "lambda0": LAMBDA["data"], "ramp": "none", "warmup_steps": 0}
        rate = {"learning_rate": self.learning_rate * self.head_rate, "head_rate": 1.0}
        return self.model_copy(update={**changes, **rate})
