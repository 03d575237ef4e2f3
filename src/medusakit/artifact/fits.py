"""Do these heads belong to this model? Heads of another model would draft noise, slowly and silently."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from medusakit.errors import ArtifactError, ArtifactMismatchError
from medusakit.models.spec import WeightSource

if TYPE_CHECKING:
    from medusakit.artifact.io import Artifact

AGAIN = "copy or train the heads again"
DRAFT_IDS = "draft_ids"


def check_fits(artifact: Artifact, source: WeightSource, *, tokenizer_hash: str = "") -> None:
    """Raises ArtifactMismatchError with both values if width, vocabulary, tokenizer or fingerprint differ.

    tokenizer_hash  the loaded tokenizer's hash; "" leaves that comparison out (as does an artifact without one), and so
                    does a source without a fingerprint: a model in memory whose files are not known
    """
    heads, model = artifact.manifest.backbone, source.spec
    pairs: list[tuple[str, object, object]] = [
        ("hidden size", heads.hidden_size, model.hidden_size),
        ("vocabulary", heads.vocab_size, model.vocab_size),
        ("tokenizer hash", heads.tokenizer_hash or tokenizer_hash, tokenizer_hash or heads.tokenizer_hash),
        ("weights' fingerprint", heads.fingerprint, source.fingerprint or heads.fingerprint),
    ]
    for what, expected, found in pairs:
        if expected != found:
            raise ArtifactMismatchError(
                f"the heads in {artifact.path} do not fit this model: they expect {what} {expected} ({heads.name}), "
                f"the model has {found} ({model.name})",
                hint="--heads none decodes plainly, or: medusa train all -m MODEL --out ./heads",
            )


def check_tensors(
    artifact: Artifact, tensors: Mapping[str, NDArray[np.generic]], expected: Mapping[str, tuple[int, ...]]
) -> None:
    """The drafter's file must hold exactly the tensors that its family expects: float16, but for the draft ids.

    Raises ArtifactError naming the first that differs.
    """
    for name, shape in expected.items():
        if name not in tensors:
            raise ArtifactError(f"{artifact.path}: tensor {name} is missing from the drafter's file", hint=AGAIN)
        found = tensors[name]
        if found.shape != shape:
            raise ArtifactError(
                f"{artifact.path}: tensor {name} has shape {list(found.shape)}, the manifest asks for {list(shape)}",
                hint=AGAIN,
            )
        if name != DRAFT_IDS and found.dtype != np.float16:
            raise ArtifactError(
                f"{artifact.path}: tensor {name} is stored as {found.dtype}, expected float16", hint=AGAIN
            )
    _check_draft_ids(artifact, tensors.get(DRAFT_IDS))
    if extra := sorted(tensors.keys() - expected.keys()):
        raise ArtifactError(f"{artifact.path}: unexpected tensor {extra[0]} in the drafter's file", hint=AGAIN)


def _check_draft_ids(artifact: Artifact, ids: NDArray[np.generic] | None) -> None:
    """Token ids of the backbone in rising order, as drafters/vocab.py chooses them."""
    if ids is None:
        return
    vocab_size = artifact.manifest.backbone.vocab_size
    listed = ids.tolist() if np.issubdtype(ids.dtype, np.integer) else [-1]
    if min(listed) < 0 or max(listed) >= vocab_size or sorted(set(listed)) != listed:
        raise ArtifactError(
            f"{artifact.path}: draft_ids ({ids.dtype}) must be token ids from 0 to {vocab_size - 1} in rising order, "
            f"got values from {ids.min()} to {ids.max()}",
            hint=AGAIN,
        )
