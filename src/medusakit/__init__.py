"""Medusa for any machine: light heads draft several tokens, one pass verifies a tree of them, output stays exact."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from medusakit.engine.events import GenerationResult, GenerationStats, TokenEvent
    from medusakit.errors import MedusaError
    from medusakit.llm import LLM
    from medusakit.settings import SamplingParams

__version__ = "0.1.0"
__all__ = ["LLM", "GenerationResult", "GenerationStats", "MedusaError", "SamplingParams", "TokenEvent"]

_HOME = {
    "LLM": "medusakit.llm",
    "GenerationResult": "medusakit.engine.events",
    "GenerationStats": "medusakit.engine.events",
    "MedusaError": "medusakit.errors",
    "SamplingParams": "medusakit.settings",
    "TokenEvent": "medusakit.engine.events",
}


def __getattr__(name: str) -> object:
    """Public names load on first use, so that `import medusakit` and `medusa --help` stay free of NumPy."""
    if name not in _HOME:
        raise AttributeError(f"module 'medusakit' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOME[name]), name)
