"""Read and write an artifact folder (schema.py). Reading checks everything; writing is all or nothing."""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ValidationError
from safetensors import SafetensorError
from safetensors.numpy import load_file, save

from medusakit.artifact.card import card_text
from medusakit.artifact.files import atomic_folder, sha256_file, write_atomic
from medusakit.artifact.fits import AGAIN, check_fits, check_tensors
from medusakit.artifact.schema import (
    ArtifactManifest,
    Backbone,
    CalibratedTree,
    DrafterConfig,
    Provenance,
    TreeNode,
)
from medusakit.errors import ArtifactError
from medusakit.tree.topology import Topology

__all__ = ["Artifact", "check_fits", "check_tensors", "load_artifact", "save_artifact", "save_provenance"]

MANIFEST, TENSORS, TREE, CARD = "medusa.json", "drafter.safetensors", "tree.json", "README.md"
_MAX_RANK = 1024  # of drafters with the full vocabulary: no measured tree comes near it
Array = NDArray[np.generic]
Model = TypeVar("Model", bound=BaseModel)
_SCHEMAS = (ArtifactManifest, Backbone, DrafterConfig, Provenance, CalibratedTree, TreeNode)


@dataclass(frozen=True, slots=True)
class Artifact:
    """A checked folder. The tree is valid and no deeper than the drafter; tensors are read on demand."""

    path: Path
    manifest: ArtifactManifest
    tree: CalibratedTree

    def tensors(self) -> dict[str, Array]:
        """Tensors by name, as stored (float16, integer tables). Raises ArtifactError if unreadable or not finite."""
        file = self.path / TENSORS
        try:
            tensors: dict[str, Array] = load_file(file)
        except (SafetensorError, OSError, ValueError) as cause:
            raise ArtifactError(f"{file} is not a readable safetensors file: {cause}", hint=AGAIN) from cause
        _require_finite(file, tensors)
        return tensors

    @property
    def exponents(self) -> tuple[float, ...]:
        """Per depth, p ** exponent is the acceptance that was measured where the drafter said p; () if unknown."""
        stored = self.manifest.provenance.metrics.get("exponents", ())
        return tuple(float(value) for value in stored if isinstance(value, int | float))

    def topology(self, num_nodes: int) -> Topology:
        """The calibrated tree's first `num_nodes` rows, root included (fewer if the tree is smaller)."""
        return Topology.from_rank_paths(node.path for node in self.tree.nodes[: max(num_nodes - 1, 0)])


def load_artifact(path: str | Path) -> Artifact:
    """Open a heads folder. Raises ArtifactError: missing or changed files, unknown keys, too deep a tree."""
    folder = Path(path)
    if not os.path.isfile(folder / MANIFEST):  # Path.is_file raises for a name that is too long
        why = f"it has no {MANIFEST}" if os.path.exists(folder) else "it does not exist"
        raise ArtifactError(f"{folder} is not a heads folder: {why}", hint="medusa train all -m MODEL --out ./heads")
    manifest = _parse(ArtifactManifest, folder / MANIFEST)
    _check_files(folder, manifest)
    tree = _parse(CalibratedTree, folder / TREE)
    check_tree(tree, manifest.drafter, where=str(folder / TREE))
    return Artifact(folder, manifest, tree)


def save_artifact(
    path: str | Path,
    *,
    backbone: Backbone,
    drafter: DrafterConfig,
    tree: CalibratedTree,
    tensors: Mapping[str, Array],
    provenance: Provenance,
) -> Artifact:
    """Write the folder, replacing an earlier artifact there; floats are stored as float16.

    Raises ArtifactError for values that may not be stored, or if `path` holds something else than an artifact;
    RuntimeFailure if the disk is full or not writable. In every such case `path` stays as it was.
    """
    folder = Path(path)
    if folder.exists() and not _replaceable(folder):
        raise ArtifactError(
            f"{folder} exists and is not a heads folder, so it will not be replaced", hint="give another --out"
        )
    check_tree(tree, drafter, where="the calibrated tree")
    stored = {name: _as_stored(name, value) for name, value in tensors.items()}
    with atomic_folder(folder) as temporary:
        (temporary / TENSORS).write_bytes(save(stored))
        (temporary / TREE).write_text(tree.model_dump_json(indent=1) + "\n", encoding="utf-8")
        hashes = {name: sha256_file(temporary / name) for name in (TENSORS, TREE)}
        manifest = ArtifactManifest(backbone=backbone, drafter=drafter, files=hashes, provenance=provenance)
        (temporary / MANIFEST).write_text(_manifest_text(manifest), encoding="utf-8")
        (temporary / CARD).write_text(card_text(manifest, tree), encoding="utf-8")
    return Artifact(folder, manifest, tree)


def save_provenance(artifact: Artifact, provenance: Provenance) -> Artifact:
    """Replace what the manifest says of where the heads come from and how they do; tensors and tree stay as they are.

    Raises RuntimeFailure if the folder cannot be written: then the manifest is the old one.
    """
    manifest = artifact.manifest.model_copy(update={"provenance": provenance})
    write_atomic(artifact.path / MANIFEST, _manifest_text(manifest).encode())
    write_atomic(artifact.path / CARD, card_text(manifest, artifact.tree).encode())
    return Artifact(artifact.path, manifest, artifact.tree)


def check_tree(tree: CalibratedTree, drafter: DrafterConfig, *, where: str) -> None:
    """Every prefix must be a tree, and none of it deeper or wider than the drafter. Raises ArtifactError."""
    hint = "medusa train tree, which measures and writes it again"
    try:
        topology = Topology.from_rank_paths(node.path for node in tree.nodes)
    except ValueError as cause:
        raise ArtifactError(f"{where} is not a tree: {cause}", hint=hint) from cause
    if topology.max_depth > drafter.depth:
        raise ArtifactError(
            f"{where} is {topology.max_depth} deep, but the drafter has {drafter.depth} heads", hint=hint
        )
    ranks = [rank for node in tree.nodes for rank in node.path]
    width = drafter.draft_vocab_size or _MAX_RANK
    if ranks and not (min(ranks) >= 0 and max(ranks) < width):
        raise ArtifactError(
            f"{where} has ranks from {min(ranks)} to {max(ranks)}, expected 0 to {width - 1}", hint=hint
        )


def _manifest_text(manifest: ArtifactManifest) -> str:
    return manifest.model_dump_json(indent=2) + "\n"


def _replaceable(folder: Path) -> bool:
    return folder.is_dir() and ((folder / MANIFEST).is_file() or not any(folder.iterdir()))


def _as_stored(name: str, value: Array) -> Array:
    if not np.issubdtype(value.dtype, np.floating):
        return np.ascontiguousarray(value)
    with np.errstate(over="ignore"):
        stored = np.ascontiguousarray(value, dtype=np.float16)
    if not np.isfinite(stored).all():
        raise ArtifactError(
            f"tensor {name} has values that float16 cannot hold (NaN, infinite or above 65,504)",
            hint="train again with a lower learning rate",
        )
    return stored


def _require_finite(file: Path, tensors: Mapping[str, Array]) -> None:
    for name, value in tensors.items():
        if np.issubdtype(value.dtype, np.floating) and not np.isfinite(value).all():
            raise ArtifactError(f"{file}: tensor {name} holds NaN or infinite values", hint=AGAIN)


def _check_files(folder: Path, manifest: ArtifactManifest) -> None:
    if missing := {TENSORS, TREE} - manifest.files.keys():
        raise ArtifactError(f"{folder / MANIFEST} lists no sha256 of {', '.join(sorted(missing))}", hint=AGAIN)
    for name, expected in manifest.files.items():
        file = folder / name
        if Path(name).name != name or not file.is_file():
            raise ArtifactError(f"{file} is missing from the heads folder", hint=AGAIN)
        if (found := sha256_file(file)) != expected:
            raise ArtifactError(
                f"{file} was changed or damaged: its sha256 is {found}, {MANIFEST} says {expected}",
                hint=AGAIN,
            )


def _parse(schema: type[Model], file: Path) -> Model:
    try:
        return schema.model_validate_json(file.read_bytes())
    except OSError as cause:
        raise ArtifactError(f"{file} cannot be read: {cause.strerror}", hint=AGAIN) from cause
    except ValidationError as cause:
        raise ArtifactError(f"{file}: {_first_problem(cause.errors()[0])}", hint=AGAIN) from cause


def _first_problem(error: Any) -> str:
    where = ".".join(str(part) for part in error["loc"])
    if error["type"] == "extra_forbidden":
        known = sorted({name for schema in _SCHEMAS for name in schema.model_fields})
        nearest = difflib.get_close_matches(str(error["loc"][-1]), known, n=1)
        return f"unknown key {where}" + (f", did you mean {nearest[0]}?" if nearest else "")
    if where == "schema_version":
        return f"schema_version is {error['input']!r}, this version reads 1"
    return f"{where or 'content'}: {error['msg'].lower()} (found {str(error.get('input'))[:60]})"
