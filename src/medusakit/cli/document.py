"""What commands write with --json: a generation as plain values, and the versions and settings it was made with."""

from __future__ import annotations

import math
import platform
from dataclasses import asdict
from importlib import metadata
from typing import TYPE_CHECKING, Any

from medusakit.cli.footer import depth_shares
from medusakit.config import Config
from medusakit.engine.events import GenerationResult, GenerationStats, TokenEvent

if TYPE_CHECKING:
    from medusakit.llm import LLM

PACKAGES = (
    "medusakit",
    "onnxruntime",
    "numpy",
    "tokenizers",
    "jinja2",
    "onnx",
    "gguf",
    "safetensors",
    "pydantic",
    "torch",
    "transformers",
)


def generation(result: GenerationResult) -> dict[str, Any]:
    """A result with its tokens and their provenance."""
    return {
        "text": result.text,
        "finish_reason": result.finish_reason,
        "seed": result.seed,
        "lossless": result.lossless,
        "stats": statistics(result.stats),
        "tokens": [_token(event) for event in result.events],
    }


def statistics(stats: GenerationStats) -> dict[str, Any]:
    """Counts and times, and the figures derived from them."""
    derived = {
        "decode_s": stats.decode_s,
        "tau": stats.tau,
        "nodes_per_step": stats.nodes_per_step,
        "tokens_per_s": stats.tokens_per_s,
        "acceptance_by_depth": depth_shares(stats),
    }
    return asdict(stats) | derived


def model(llm: LLM) -> dict[str, Any]:
    """Which model answered, and how its weights are stored."""
    spec, capabilities = llm.runtime.spec, llm.runtime.capabilities
    return {
        "name": spec.name,
        "family": spec.family,
        "layers": spec.num_layers,
        "hidden_size": spec.hidden_size,
        "vocab_size": spec.vocab_size,
        "weights": capabilities.weights,
        "max_context": capabilities.max_context,
    }


def circumstances(config: Config) -> dict[str, Any]:
    """Settings, versions and machine of this call."""
    return {"config": asdict(config), "versions": versions(), "machine": machine()}


def versions() -> dict[str, str]:
    """Versions of Python and of the packages that are installed."""
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def machine() -> dict[str, Any]:
    import os

    return {"system": platform.platform(), "cpu": cpu_name(), "cores": os.cpu_count()}


def cpu_name() -> str:
    """The processor's own name where the system tells it."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as lines:
            for line in lines:
                if line.startswith("model name"):
                    return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def _token(event: TokenEvent) -> dict[str, Any]:
    values = asdict(event)
    values["logprob"] = None if math.isnan(event.logprob) else event.logprob
    return values
