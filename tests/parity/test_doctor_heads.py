"""The doctor on the embedded model: the packaged heads are well, and faults planted into them are found."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from medusakit.artifact.find import packaged_heads
from medusakit.artifact.io import load_artifact, save_artifact
from medusakit.diagnosis.findings import Finding
from medusakit.diagnosis.opening import examine_heads

pytestmark = pytest.mark.model
Tensors = dict[str, np.ndarray[Any, Any]]


def faults(folder: Path) -> dict[str, Finding]:
    found = examine_heads(folder, "smollm2", weights="f32")
    return {finding.code: finding for finding in found if finding.severity != "info"}


def broken(name: str, out: Path, change: Callable[[Tensors], None], depth: int | None = None) -> Path:
    artifact = load_artifact(packaged_heads() / name)
    manifest, tensors = artifact.manifest, artifact.tensors()
    change(tensors)
    drafter = manifest.drafter.model_copy(update={"depth": depth or manifest.drafter.depth})
    nodes = tuple(node for node in artifact.tree.nodes if len(node.path) <= drafter.depth)
    tree = artifact.tree.model_copy(update={"nodes": nodes})
    save_artifact(out, backbone=manifest.backbone, drafter=drafter, tree=tree, tensors=tensors,
                  provenance=manifest.provenance)  # fmt: skip
    return out


@pytest.mark.parametrize("name", ["medusa", "hydra"])
def test_packaged_heads_are_well(name: str) -> None:
    assert faults(packaged_heads() / name) == {}


def test_first_head_lost(tmp_path: Path) -> None:
    def drop(tensors: Tensors) -> None:
        for name in ("blocks.0.weight", "blocks.0.bias"):
            tensors[name] = tensors[name][1:]

    found = faults(broken("medusa", tmp_path / "h", drop, depth=3))
    assert "head-shift" in found and "+1" in found["head-shift"].evidence


def test_biases_lost(tmp_path: Path) -> None:
    assert "missing-biases" in faults(broken("medusa", tmp_path / "m", lambda t: t["blocks.0.bias"].fill(0)))
    assert "missing-biases" in faults(broken("hydra", tmp_path / "h", lambda t: t["depth"].fill(0)))


def test_heads_of_noise(tmp_path: Path) -> None:
    def shuffle(tensors: Tensors) -> None:
        rng = np.random.default_rng(0)
        for name in ("w_in", "w_out"):
            tensors[name] = rng.permutation(tensors[name].ravel()).reshape(tensors[name].shape)

    assert "untrained" in faults(broken("hydra", tmp_path / "h", shuffle))
