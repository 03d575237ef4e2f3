"""Refusals shared by the readers: a family or a feature that this version does not run."""

from __future__ import annotations

from pathlib import Path
from typing import NoReturn

from medusakit.errors import OTHER_MODEL, UnsupportedModelError
from medusakit.models.spec import FAMILIES


def refuse_family(path: Path, family: str) -> NoReturn:
    raise UnsupportedModelError(
        f"{path} holds a model of the family {family!r}; supported: {', '.join(FAMILIES)}",
        hint=OTHER_MODEL,
    )


def refuse_feature(path: Path, key: str, value: object, expected: str) -> NoReturn:
    """A setting that would change the model's output and that the runtime does not have."""
    raise UnsupportedModelError(
        f"{path}: {key} is {value}, which is not supported (expected {expected})",
        hint=OTHER_MODEL,
    )
