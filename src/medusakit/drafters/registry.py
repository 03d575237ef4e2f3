"""From an artifact, or from the name of a drafter that needs none, to a drafter that runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from medusakit.drafters.base import Drafter
from medusakit.errors import ArtifactError, UsageError
from medusakit.models.spec import WeightSource
from medusakit.runtimes.base import OnDevice, Runtime
from medusakit.tree.topology import Beam

if TYPE_CHECKING:
    from medusakit.artifact.io import Artifact
    from medusakit.artifact.schema import DrafterConfig

FAMILIES = ("medusa", "hydra", "context", "cnn_lstm", "ssm")
ON_DEVICE = ("medusa", "hydra")
HEADLESS = ("suffix", "recycling")
DRAFT_MODEL = "draft_model"
WITHOUT_HEADS = (*HEADLESS, DRAFT_MODEL)


def load_drafter(
    artifact: Artifact, source: WeightSource, *, threads: int | None = None, runtime: Runtime | None = None
) -> Drafter:
    """The drafter of a heads folder. Raises ArtifactError for an unknown family or tensors that do not fit it.

    threads  of the drafter's session; give the runtime's own number, so that they share one pool's size
    runtime  one that runs on a device: families that can draft there do
    """
    from medusakit.artifact.io import check_tensors

    config, tensors = artifact.manifest.drafter, artifact.tensors()
    if config.family not in FAMILIES:
        raise ArtifactError(
            f"{artifact.path}: drafter family {config.family!r} is not one that this version runs",
            hint=f"families: {', '.join(FAMILIES)}",
        )
    check_tensors(artifact, tensors, _family(config.family)[0](config, source.spec.hidden_size))
    return trained_drafter(config, tensors, source, threads=threads, runtime=runtime)


def trained_drafter(
    config: DrafterConfig,
    tensors: Mapping[str, NDArray[np.generic]],
    source: WeightSource,
    *,
    threads: int | None = None,
    quantised: bool = True,
    runtime: Runtime | None = None,
) -> Drafter:
    """A drafter of one of FAMILIES; see `HeadsDrafter` and `load_drafter` for the arguments."""
    on_device = isinstance(runtime, OnDevice) and config.family in ON_DEVICE
    make = _device_drafter(config.family) if on_device else _family(config.family)[1]
    return make(config, tensors, source, threads=threads, quantised=quantised, runtime=runtime)


def _device_drafter(name: str) -> Callable[..., Drafter]:
    if name == "medusa":
        from medusakit.drafters.medusa.device import DeviceMedusaDrafter

        return DeviceMedusaDrafter
    from medusakit.drafters.hydra.device import DeviceHydraDrafter

    return DeviceHydraDrafter


def _family(name: str) -> tuple[Callable[[DrafterConfig, int], dict[str, tuple[int, ...]]], Callable[..., Drafter]]:
    """The tensors that a trained family expects, and its drafter."""
    if name == "medusa":
        from medusakit.drafters.medusa.config import tensor_shapes as medusa_shapes
        from medusakit.drafters.medusa.drafter import MedusaDrafter

        return medusa_shapes, MedusaDrafter
    if name == "hydra":
        from medusakit.drafters.hydra.config import tensor_shapes as hydra_shapes
        from medusakit.drafters.hydra.drafter import HydraDrafter

        return hydra_shapes, HydraDrafter
    if name == "context":
        from medusakit.drafters.context.config import tensor_shapes as context_shapes
        from medusakit.drafters.context.drafter import ContextDrafter

        return context_shapes, ContextDrafter
    if name == "cnn_lstm":
        from medusakit.drafters.cnn_lstm.config import tensor_shapes as cnn_lstm_shapes
        from medusakit.drafters.cnn_lstm.drafter import CnnLstmDrafter

        return cnn_lstm_shapes, CnnLstmDrafter
    from medusakit.drafters.ssm.config import tensor_shapes as ssm_shapes
    from medusakit.drafters.ssm.drafter import SsmDrafter

    return ssm_shapes, SsmDrafter


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
