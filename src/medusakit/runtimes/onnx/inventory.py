"""What the graph cache holds, and how to get its disk space back. A graph that is needed again is built again."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from medusakit.errors import CacheError
from medusakit.models.home import sweep
from medusakit.runtimes.onnx.cache import BUILDER_VERSION, FOLDER_NAME, KEY_LENGTH, SCRATCH, default_root, discard


@dataclass(frozen=True, slots=True)
class BuiltGraph:
    """A folder of the cache. fingerprint: the beginning of its model's. num_bytes: of its files."""

    path: Path
    fingerprint: str
    weights: str
    version: int
    num_bytes: int

    @property
    def current(self) -> bool:
        """This version opens it; those of other versions it never does."""
        return self.version == BUILDER_VERSION


def built_graphs(root: Path | None = None) -> list[BuiltGraph]:
    """Every graph of the cache, whole or damaged, by name."""
    folder = root or default_root()
    named = ((path, FOLDER_NAME.fullmatch(path.name)) for path in sorted(folder.glob("*")) if path.is_dir())
    return [
        BuiltGraph(path, name["fingerprint"], name["weights"], int(name["version"]), _size(path))
        for path, name in named
        if name is not None
    ]


def graphs_of(fingerprint: str, root: Path | None = None) -> list[BuiltGraph]:
    """Every graph of one model."""
    return [graph for graph in built_graphs(root) if graph.fingerprint == fingerprint[:KEY_LENGTH]]


def remove_graphs(graphs: Iterable[BuiltGraph], root: Path | None = None) -> int:
    """Delete them, and what killed builds left. Returns the bytes of the graphs. Raises CacheError if the disk refuses.

    A process that runs one of them keeps it: what is mapped stays readable.
    """
    sweep(root or default_root(), SCRATCH)
    freed = 0
    for graph in graphs:
        try:
            discard(graph.path)
        except FileNotFoundError:  # another process removed it meanwhile
            continue
        except OSError as error:
            raise CacheError(f"cannot delete {graph.path}: {error.strerror}", hint=f"ls -ld {graph.path}") from error
        freed += graph.num_bytes
    return freed


def _size(folder: Path) -> int:
    total = 0
    for file in folder.glob("*"):
        with suppress(OSError):  # removed meanwhile
            total += os.lstat(file).st_size
    return total
