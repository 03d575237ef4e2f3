"""What every measured document says about how it came about: machine, versions, model, settings."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from medusakit.llm import LLM
from medusakit.machine import installed, machine_name
from medusakit.settings import SamplingParams

PACKAGES = ("medusakit", "onnxruntime", "numpy", "tokenizers", "torch", "transformers")


def circumstances(llm: LLM, config: Mapping[str, Any], params: SamplingParams) -> dict[str, Any]:
    """The keys config, machine, versions and model."""
    return {
        "config": {**config, "params": asdict(params)},
        "machine": machine(),
        "versions": versions(),
        "model": model(llm),
    }


def machine() -> dict[str, Any]:
    return {"cpu": machine_name(), "system": platform.platform(), "python": platform.python_version()}


def versions() -> dict[str, str]:
    """Installed versions of the packages that figures depend on."""
    return installed(PACKAGES)


def model(llm: LLM) -> dict[str, Any]:
    """Backbone, weights, heads and tree."""
    parts, drafting = llm.parts, llm.parts.speculation
    spec, artifact = llm.runtime.spec, parts.artifact
    return {
        "name": spec.name,
        "family": spec.family,
        "fingerprint": parts.source.fingerprint,
        "weights": llm.runtime.capabilities.weights,
        "exact": llm.runtime.capabilities.exact,
        "requantised": llm.runtime.capabilities.requantised,
        "drafter": drafting.drafter.name if drafting.drafter else None,
        "heads_created": artifact.manifest.provenance.created if artifact else None,
        "nodes": drafting.topology.num_nodes if drafting.max_nodes is None else drafting.max_nodes,
        "predicted": asdict(drafting.budget) if drafting.budget else None,
    }
