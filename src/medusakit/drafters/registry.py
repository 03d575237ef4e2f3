"""From an artifact, or from the name of a drafter that needs none, to a drafter that runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from medusakit.drafters.base import Beam, Drafter
from medusakit.errors import ArtifactError, UsageError
from medusakit.models.spec import WeightSource

if TYPE_CHECKING:
    from medusakit.artifact.io import Artifact

FAMILIES = ("medusa", "hydra")
HEADLESS = ("suffix", "recycling")


def load_drafter(artifact: Artifact, source: WeightSource, *, threads: int | None = None) -> Drafter:
    """The drafter of a heads folder. Raises ArtifactError for an unknown family or tensors that do not fit it.

    threads  of the drafter's session; give the runtime's own number, so that they share one pool's size
    """
    from medusakit.artifact.io import check_tensors

    config, tensors = artifact.manifest.drafter, artifact.tensors()
    size = source.spec.hidden_size
    if config.family == "medusa":
        from medusakit.drafters.medusa.config import tensor_shapes as medusa_shapes
        from medusakit.drafters.medusa.drafter import MedusaDrafter

        check_tensors(artifact, tensors, medusa_shapes(config, size))
        return MedusaDrafter(config, tensors, source, threads=threads)
    if config.family == "hydra":
        from medusakit.drafters.hydra.config import tensor_shapes as hydra_shapes
        from medusakit.drafters.hydra.drafter import HydraDrafter

        check_tensors(artifact, tensors, hydra_shapes(config, size))
        return HydraDrafter(config, tensors, source, threads=threads)
    raise ArtifactError(
        f"{artifact.path}: drafter family {config.family!r} is not one that this version runs",
        hint=f"families: {', '.join(FAMILIES)}",
    )


def headless_drafter(name: str, *, vocab_size: int) -> tuple[Drafter, Beam]:
    """A drafter that needs no training, and the beam that its trees are taken from. Raises UsageError for a name."""
    if name == "suffix":
        from medusakit.drafters.suffix.drafter import BEAM as SUFFIX_BEAM
        from medusakit.drafters.suffix.drafter import SuffixDrafter

        return SuffixDrafter(), SUFFIX_BEAM
    if name == "recycling":
        from medusakit.drafters.recycling.drafter import BEAM as RECYCLING_BEAM
        from medusakit.drafters.recycling.drafter import RecyclingDrafter

        return RecyclingDrafter(vocab_size), RECYCLING_BEAM
    raise UsageError(f"no drafter {name!r} works without heads", hint=f"one of: {', '.join(HEADLESS)}")
