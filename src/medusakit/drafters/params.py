"""A family's hyperparameters, as an artifact holds them."""

from __future__ import annotations

from typing import TypeVar

from pydantic import BaseModel, ValidationError

from medusakit.artifact.schema import DrafterConfig
from medusakit.errors import ArtifactError

Params = TypeVar("Params", bound=BaseModel)


def read_params(schema: type[Params], config: DrafterConfig) -> Params:
    """Validated `config.params`. Raises ArtifactError naming the family and the bad key or value."""
    try:
        return schema.model_validate(config.params)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(part) for part in first["loc"])
        raise ArtifactError(
            f"{config.family}: params.{key} = {first.get('input')!r}: {first['msg']}",
            hint=f"known parameters: {', '.join(schema.model_fields)}",
        ) from error
