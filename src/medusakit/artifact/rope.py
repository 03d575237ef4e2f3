"""The rotary embedding that heads were trained with, as their manifest records it (`provenance.recipe.rope`).

Weights of a Hugging Face folder say nothing of positions: an edited config.json turns the same weights into another
model, and the fingerprint does not see it.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

from medusakit.artifact.io import Artifact
from medusakit.errors import ArtifactError
from medusakit.models.spec import ModelSpec, RopeSpec, StoredTensor, WeightSource


def rope_record(rope: RopeSpec) -> dict[str, Any]:
    """Plain values for a manifest."""
    return asdict(rope)


def recorded_rope(artifact: Artifact) -> RopeSpec | None:
    """None for heads that record none. Raises ArtifactError for values that are no rotary embedding."""
    record = artifact.manifest.provenance.recipe.get("rope")
    if record is None:
        return None
    try:
        values: dict[str, Any] = {name: tuple(v) if isinstance(v, list) else v for name, v in record.items()}
        return RopeSpec(**values)
    except (TypeError, AttributeError) as cause:
        message = f"{artifact.path}: the recorded rope cannot be read: {cause}"
        raise ArtifactError(message, hint="medusa train all -m MODEL --out ./heads") from cause


@dataclass(frozen=True, slots=True)
class TurnedSource:
    """A model with another rotary embedding. Weights, and so graphs, are the same: positions are inputs of a pass."""

    inner: WeightSource
    rope: RopeSpec

    @property
    def spec(self) -> ModelSpec:
        return replace(self.inner.spec, rope=self.rope)

    @property
    def fingerprint(self) -> str:
        return self.inner.fingerprint

    @property
    def default_weights(self) -> str:
        return self.inner.default_weights

    def names(self) -> Any:
        return self.inner.names()

    def tensor(self, name: str) -> StoredTensor:
        return self.inner.tensor(name)


def aligned(source: WeightSource, artifact: Artifact | None) -> WeightSource:
    """The model with the positions that the heads were trained with (`--align-position-embed`).

    Raises ArtifactError where the heads record none: then nothing is known to align to.
    """
    rope = None if artifact is None else recorded_rope(artifact)
    if artifact is None or rope is None:
        where = "there are no heads" if artifact is None else f"the heads in {artifact.path} record no positions"
        raise ArtifactError(
            f"{where}, so there is nothing to align the model's positions to",
            hint="without --align-position-embed; medusa doctor --artifact DIR   tells whether positions are wrong",
        )
    return source if rope == source.spec.rope else TurnedSource(source, rope)
