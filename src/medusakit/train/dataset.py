"""A training set: a folder of shards (shards.py) and their manifest (manifest.py). A kill loses at most one shard.

A shard is complete or absent. On restart, shards that are on disk but not yet in the manifest are taken in, and whoever
fills the set skips what `finished` lists.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from medusakit.artifact.files import disk_error, make_folder, sha256_file, write_atomic
from medusakit.artifact.schema import Backbone
from medusakit.errors import DatasetError
from medusakit.train.manifest import MANIFEST, DatasetManifest, ShardEntry, check_dataset, read_manifest
from medusakit.train.shards import Sample, Shard, shard_bytes

_SPLIT_BUCKETS = 10_000


class ShardWriter:
    """Appends samples to a set. Use as a context manager: leaving it, even by Ctrl-C, saves what was added.

    Memory: at most `shard_tokens` tokens and one sample are held before they go to disk.
    Raises DatasetError if the folder holds another set, or another process writes it; RuntimeFailure on a full disk
    (finished shards stay, and the next run continues after them).
    """

    def __init__(self, folder: Path, manifest: DatasetManifest, *, shard_tokens: int = 16_384) -> None:
        self._folder = make_folder(folder)
        self._shard_tokens = shard_tokens
        self._pending: list[Sample] = []
        self._pending_tokens = 0
        self._lock = _lock(folder)
        try:
            self._manifest = _adopt(folder, _continued(folder, manifest))
            self._save_manifest()
            self.finished = _identities(folder, self._manifest)
        except BaseException:
            os.close(self._lock)
            raise

    @property
    def num_tokens(self) -> int:
        """Generated tokens, on disk and pending."""
        return self._manifest.num_tokens + self._pending_tokens

    @property
    def num_samples(self) -> int:
        return self._manifest.num_samples + len(self._pending)

    def add(self, sample: Sample) -> None:
        if not np.isfinite(sample.hidden).all():
            raise DatasetError(
                "the model's hidden states hold NaN or values that float16 cannot hold",
                hint="check the model: medusa doctor -m MODEL",
            )
        self._pending.append(sample)
        self._pending_tokens += sample.num_generated
        self.finished.add((sample.group, sample.turn))
        if self._pending_tokens >= self._shard_tokens:
            self.flush()

    def flush(self) -> None:
        """Write pending samples as one shard. They stay pending if that fails."""
        if not self._pending:
            return
        name = _next_name(self._manifest)
        data = shard_bytes(self._pending)
        write_atomic(self._folder / name, data)
        entry = ShardEntry(
            name=name,
            sha256=hashlib.sha256(data).hexdigest(),
            num_samples=len(self._pending),
            num_tokens=self._pending_tokens,
        )
        self._manifest = self._manifest.with_shards((*self._manifest.shards, entry))
        self._pending, self._pending_tokens = [], 0
        self._save_manifest()

    def __enter__(self) -> ShardWriter:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.flush()
        finally:
            os.close(self._lock)

    def _save_manifest(self) -> None:
        write_atomic(self._folder / MANIFEST, self._manifest.model_dump_json(indent=1).encode())


class Dataset:
    """One or several folders of shards of one model, read as one sequence of samples; memory-mapped."""

    def __init__(self, folders: Sequence[Path], *, verify: bool = True) -> None:
        """verify: compare every shard with its sha256 first (about a second for 500 MB)."""
        if not folders:
            raise DatasetError("no folder of training data was given", hint="medusa train distill --work runs/mine")
        self.manifests = [check_dataset(folder) if verify else read_manifest(folder) for folder in folders]
        _require_one_model(folders, self.manifests)
        self.shards = [
            Shard(folder / entry.name)
            for folder, manifest in zip(folders, self.manifests, strict=True)
            for entry in manifest.shards
        ]
        self._starts = np.cumsum([0, *(len(shard) for shard in self.shards)])

    @property
    def backbone(self) -> Backbone:
        return self.manifests[0].backbone

    @property
    def num_tokens(self) -> int:
        """Generated tokens in all."""
        return sum(shard.num_tokens for shard in self.shards)

    def __len__(self) -> int:
        return int(self._starts[-1])

    def __getitem__(self, index: int) -> Sample:
        shard = int(np.searchsorted(self._starts, index, side="right")) - 1
        return self.shards[shard][index - int(self._starts[shard])]

    def __iter__(self) -> Iterator[Sample]:
        return (self[index] for index in range(len(self)))

    def split(self, held_out: float, *, seed: int = 0) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """(training, held-out) sample indices. Whole conversations go to one side; folders added later move nobody."""
        groups = np.concatenate([shard.groups for shard in self.shards] or [np.empty(0, np.int64)]).astype(np.uint64)
        mixed = (groups ^ np.uint64(seed)) * np.uint64(0x9E3779B97F4A7C15)
        is_held = (mixed >> np.uint64(32)) % np.uint64(_SPLIT_BUCKETS) < np.uint64(round(held_out * _SPLIT_BUCKETS))
        return np.flatnonzero(~is_held), np.flatnonzero(is_held)


def _lock(folder: Path) -> int:
    """Held until the process ends, so that a kill leaves nothing locked."""
    try:
        handle = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as cause:
        raise disk_error(folder, cause) from cause
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as cause:
        os.close(handle)
        raise DatasetError(f"another process is writing {folder}", hint="wait for it, or give another --out") from cause
    return handle


def _continued(folder: Path, wanted: DatasetManifest) -> DatasetManifest:
    if not (folder / MANIFEST).exists():
        return wanted
    found = read_manifest(folder)
    for what, old, new in (
        ("model", found.backbone.fingerprint, wanted.backbone.fingerprint),
        ("seed", found.seed, wanted.seed),
        ("settings", found.settings, wanted.settings),
    ):
        if old != new:
            raise DatasetError(
                f"{folder} was begun with {what} {old}, now asked for {new}",
                hint="give another --out, or remove the folder",
            )
    return found.with_shards(entry for entry in found.shards if (folder / entry.name).is_file())


def _adopt(folder: Path, manifest: DatasetManifest) -> DatasetManifest:
    """Take in shards that were renamed into place just before a kill: a shard under its final name is complete."""
    known = {entry.name: entry for entry in manifest.shards}
    for file in sorted(folder.glob("shard-*.safetensors")):
        if file.name not in known:
            shard = Shard(file)
            known[file.name] = ShardEntry(
                name=file.name, sha256=sha256_file(file), num_samples=len(shard), num_tokens=shard.num_tokens
            )
    for leftover in folder.glob(".shard-*.tmp"):
        leftover.unlink()
    return manifest.with_shards(known.values())


def _identities(folder: Path, manifest: DatasetManifest) -> set[tuple[int, int]]:
    pairs: set[tuple[int, int]] = set()
    for entry in manifest.shards:
        shard = Shard(folder / entry.name)
        pairs.update(zip(shard.groups.tolist(), shard.turns.tolist(), strict=True))
    return pairs


def _next_name(manifest: DatasetManifest) -> str:
    last = manifest.shards[-1].name if manifest.shards else "shard--0001.safetensors"
    return f"shard-{int(last[6:11]) + 1:05d}.safetensors"


def _require_one_model(folders: Sequence[Path], manifests: Sequence[DatasetManifest]) -> None:
    first = manifests[0].backbone.fingerprint
    for folder, manifest in zip(folders, manifests, strict=True):
        if manifest.backbone.fingerprint != first:
            raise DatasetError(
                f"{folder} holds states of another model ({manifest.backbone.fingerprint}) than {folders[0]} ({first})",
                hint="medusa train distill --work ANOTHER_FOLDER",
            )
