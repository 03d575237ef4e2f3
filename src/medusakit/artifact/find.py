"""Which heads belong to a model: beside it, in the cache, or in the package, matched by the backbone's fingerprint."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path

from pydantic import ValidationError

from medusakit.artifact.io import MANIFEST, Artifact, check_fits, load_artifact
from medusakit.artifact.schema import ArtifactManifest
from medusakit.errors import ArtifactError
from medusakit.models.home import home
from medusakit.models.spec import WeightSource

# where several heads fit, the family that drafts most tokens per millisecond comes first (docs/benchmarks.md)
PREFERENCE = ("hydra", "medusa")


def find_heads(
    heads: str, source: WeightSource, *, model_path: Path, drafter: str | None = None, tokenizer_hash: str = ""
) -> Artifact | None:
    """The artifact to decode with, or None for plain decoding.

    heads    "auto", "none", or a folder, which must fit (ArtifactMismatchError otherwise)
    drafter  keep to this family. Raises ArtifactError if heads of it were asked for and none fit.
    """
    if heads == "none":
        return None
    if heads != "auto":
        artifact = load_artifact(heads)
        check_fits(artifact, source, tokenizer_hash=tokenizer_hash)
        if drafter not in (None, artifact.manifest.drafter.family):
            raise ArtifactError(
                f"the heads in {heads} are {artifact.manifest.drafter.family}, not {drafter}",
                hint=f"--drafter {artifact.manifest.drafter.family}",
            )
        return artifact
    fitting = list(fitting_heads(source, model_path))
    chosen = [path for path, family in fitting if drafter in (None, family)]
    if not chosen and drafter is not None:
        known = ", ".join(sorted({family for _, family in fitting})) or "none"
        raise ArtifactError(
            f"no {drafter} heads fit {source.spec.name}; families that do: {known}",
            hint="medusa train all -m MODEL --out ./heads",
        )
    return load_artifact(chosen[0]) if chosen else None


def fitting_heads(source: WeightSource, model_path: Path) -> Iterator[tuple[Path, str]]:
    """Folders whose manifest names this model's fingerprint, with their family, the best first."""
    found = []
    for place, folder in _folders(model_path):
        manifest = _peek(folder)
        if manifest is not None and manifest.backbone.fingerprint == source.fingerprint:
            family = manifest.drafter.family
            rank = PREFERENCE.index(family) if family in PREFERENCE else len(PREFERENCE)
            found.append((place, rank, folder, family))
    for _, _, folder, family in sorted(found):
        yield folder, family


def packaged_heads() -> Path:
    """The folder of artifacts that come with the package."""
    return Path(str(files("medusakit"))) / "data" / "heads"


def _folders(model_path: Path) -> Iterator[tuple[int, Path]]:
    beside = model_path if model_path.is_dir() else model_path.parent
    for place, parent in enumerate((beside / "medusa", home() / "heads", packaged_heads())):
        for manifest in (parent / MANIFEST, *sorted(parent.glob(f"*/{MANIFEST}"))):
            if manifest.is_file():
                yield place, manifest.parent


def _peek(folder: Path) -> ArtifactManifest | None:
    """The manifest alone; folders that cannot be read belong to nobody."""
    try:
        return ArtifactManifest.model_validate_json((folder / MANIFEST).read_bytes())
    except (OSError, ValidationError):
        return None
