"""The artifact: the folder that training writes and inference loads.

medusa.json            this schema (pydantic, unknown keys refused)
drafter.safetensors    the drafter's tensors, float16
tree.json              calibrated nodes in greedy order with their measured joint acceptance
README.md              the card, made from the two
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Backbone(_Strict):
    """What the drafter was trained for. Loading refuses a model that differs."""

    name: str
    fingerprint: str
    hidden_size: int = Field(gt=0)
    vocab_size: int = Field(gt=0)
    tokenizer_hash: str = ""


class DrafterConfig(_Strict):
    """Family and its hyperparameters. `params` belongs to the family, which validates it."""

    family: str
    depth: int = Field(ge=1)
    draft_vocab_size: int = Field(ge=0, description="0: the full vocabulary")
    params: dict[str, Any] = Field(default_factory=dict)


class TreeNode(_Strict):
    """A calibrated node: rank path and the share of root visits that accepted it (joint, not a product)."""

    path: tuple[int, ...]
    acceptance: float = Field(ge=0.0, le=1.0)


class CalibratedTree(_Strict):
    """Nodes in greedy order: every prefix is a valid tree, so a budget of n rows takes the first n - 1."""

    nodes: tuple[TreeNode, ...]
    num_positions: int = Field(ge=0, description="calibration positions measured")
    data: str = ""


class Provenance(_Strict):
    created: str
    medusakit: str
    recipe: dict[str, Any] = Field(default_factory=dict)
    train_tokens: int = 0
    metrics: dict[str, Any] = Field(default_factory=dict)


class ArtifactManifest(_Strict):
    schema_version: Literal[1] = 1
    backbone: Backbone
    drafter: DrafterConfig
    files: dict[str, str] = Field(description="file name -> sha256 hex")
    provenance: Provenance
