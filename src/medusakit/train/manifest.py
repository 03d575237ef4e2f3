"""The manifest of a training set: which model, which settings, which shards with their sha256."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from medusakit.artifact.files import sha256_file
from medusakit.artifact.schema import Backbone
from medusakit.errors import DatasetError

MANIFEST = "manifest.json"


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class ShardEntry(_Strict):
    name: str
    sha256: str
    num_samples: int
    num_tokens: int = Field(description="generated tokens")
    state: Literal["complete"] = "complete"


class DatasetManifest(_Strict):
    """`settings` is everything that shaped the answers; a set is continued only with equal settings."""

    schema_version: Literal[1] = 1
    backbone: Backbone
    seed: int
    settings: dict[str, Any]
    num_samples: int = 0
    num_tokens: int = 0
    shards: tuple[ShardEntry, ...] = ()

    def with_shards(self, shards: Iterable[ShardEntry]) -> DatasetManifest:
        entries = tuple(sorted(shards, key=lambda entry: entry.name))
        return self.model_copy(
            update={
                "shards": entries,
                "num_samples": sum(entry.num_samples for entry in entries),
                "num_tokens": sum(entry.num_tokens for entry in entries),
            }
        )


def read_manifest(folder: Path) -> DatasetManifest:
    """The folder's manifest. Raises DatasetError if there is none or it is not one."""
    try:
        return DatasetManifest.model_validate_json((folder / MANIFEST).read_bytes())
    except OSError as cause:
        raise DatasetError(
            f"{folder} is not a training set: {MANIFEST} cannot be read ({cause.strerror})",
            hint=f"medusa train distill --work {folder.parent}",
        ) from cause
    except ValidationError as cause:
        problem = cause.errors()[0]
        raise DatasetError(
            f"{folder / MANIFEST}: {'.'.join(map(str, problem['loc']))}: {problem['msg']}",
            hint="medusa train distill --work ANOTHER_FOLDER",
        ) from cause


def check_dataset(folder: Path) -> DatasetManifest:
    """Compare every shard with its sha256. Raises DatasetError naming the first file that is missing or changed."""
    manifest = read_manifest(folder)
    for entry in manifest.shards:
        file = folder / entry.name
        if not file.is_file() or sha256_file(file) != entry.sha256:
            problem = "was changed or damaged" if file.is_file() else "is missing"
            raise DatasetError(
                f"{file} {problem}", hint=f"rm -f {file}, then distill again (only its samples are made anew)"
            )
    return manifest
