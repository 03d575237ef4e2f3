"""Where an artifact comes from: code, versions, machine, recipe, amount of data."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import medusakit
from medusakit.artifact.rope import rope_record
from medusakit.artifact.schema import Backbone, Provenance
from medusakit.machine import installed, machine_name
from medusakit.models.spec import RopeSpec, WeightSource
from medusakit.text.tokenizer import Tokenizer

_PACKAGES = ("numpy", "onnxruntime", "torch", "tokenizers")  # that shape numbers


def backbone_of(source: WeightSource, tokenizer: Tokenizer) -> Backbone:
    """The model as an artifact or a training set names it."""
    spec = source.spec
    return Backbone(
        name=spec.name,
        fingerprint=source.fingerprint,
        hidden_size=spec.hidden_size,
        vocab_size=spec.vocab_size,
        tokenizer_hash=tokenizer.hash,
    )


def provenance(
    recipe: Mapping[str, Any],
    *,
    train_tokens: int,
    metrics: Mapping[str, Any],
    licenses: Mapping[str, str],
    rope: RopeSpec | None = None,
    now: datetime | None = None,
) -> Provenance:
    """`recipe` as it was given, with file names that mean something elsewhere (no folders of this machine).

    rope  the model's positions, which its fingerprint may not cover (artifact/rope.py)
    """
    return Provenance(
        created=(now or datetime.now(UTC)).isoformat(timespec="seconds"),
        medusakit=medusakit.__version__,
        recipe={
            "settings": dict(recipe),
            "git": git_revision(),
            "machine": machine_name(),
            "versions": installed(_PACKAGES),
            "licenses": dict(licenses),
            **({} if rope is None else {"rope": rope_record(rope)}),
        },
        train_tokens=train_tokens,
        metrics=dict(metrics),
    )


def git_revision(package: Path | None = None) -> str | None:
    """The checkout's commit, with -dirty if files differ from it; None for an installed package or without git."""
    package = Path(medusakit.__file__).parent if package is None else package
    root = package.parents[1]
    if package.parent.name != "src" or not (root / ".git").exists():
        return None
    try:
        command = ["git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=20).stdout.strip() or None
    except (OSError, subprocess.SubprocessError):
        return None
