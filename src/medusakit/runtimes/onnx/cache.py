"""Built graphs on disk, one folder a model and weight format. A folder is there whole or not at all.

Its info file holds the sizes of graph and weights, so that a graph that was cut short since is built again, not run.
Whoever builds a graph removes those of earlier builders, which no process of this version opens.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from medusakit.errors import CacheError
from medusakit.models.home import sweep
from medusakit.models.spec import WeightSource
from medusakit.runtimes.onnx.formats import WEIGHTS

_INFO_FILE, _GRAPH_FILE = "info.json", "model.onnx"
SCRATCH = ".building-"
KEY_LENGTH = 24  # of a fingerprint, in a folder's name
FOLDER_NAME = re.compile(rf"(?P<fingerprint>.+)-(?P<weights>{'|'.join(WEIGHTS)})-v(?P<version>\d+)")
BUILDER_VERSION = 6  # part of every cache key: raise it when the graph of the same weights changes


@dataclass(frozen=True, slots=True)
class CachedGraph:
    """A graph file and the names of the tensors that were rounded again for its format."""

    path: Path
    requantised: tuple[str, ...]


def cached_graph(source: WeightSource, weights: str, cache_dir: Path | None) -> CachedGraph:
    """The graph, built now if the cache has none. Raises CacheError where the cache cannot be written."""
    root = cache_dir or default_root()
    folder = root / f"{source.fingerprint[:KEY_LENGTH]}-{weights}-v{BUILDER_VERSION}"
    return _read(folder) or _build(source, weights, root, folder)


def default_root() -> Path:
    """MEDUSA_HOME/graphs."""
    from medusakit.models.store import home

    return home() / "graphs"


def _read(folder: Path) -> CachedGraph | None:
    """The graph of a whole folder; None where a file is missing, damaged or not as long as it was."""
    try:
        info = json.loads((folder / _INFO_FILE).read_text())
        if info["bytes"] == _sizes(folder, info["bytes"]):
            return CachedGraph(folder / _GRAPH_FILE, tuple(info["requantised"]))
    except (OSError, ValueError, KeyError, TypeError):
        pass
    return None


def _sizes(folder: Path, names: Iterable[str]) -> dict[str, int]:
    return {name: (folder / name).stat().st_size for name in names}


def _build(source: WeightSource, weights: str, root: Path, folder: Path) -> CachedGraph:
    from medusakit.runtimes.onnx.decoder import build_decoder  # late: the onnx package is only needed to build
    from medusakit.runtimes.onnx.graph import GraphWriter

    try:
        root.mkdir(parents=True, exist_ok=True)
        sweep(root, SCRATCH)
        scratch = Path(tempfile.mkdtemp(prefix=f"{SCRATCH}{os.getpid()}-", dir=root))
    except OSError as error:
        raise CacheError(
            f"cannot write the graph cache {root}: {error.strerror}",
            hint="MEDUSA_HOME=/a/folder/you/can/write medusa ...",
        ) from error
    try:
        with GraphWriter(scratch) as graph:
            requantised = build_decoder(source, weights, graph)
        info = {"weights": weights, "requantised": requantised, "bytes": _sizes(scratch, sorted(os.listdir(scratch)))}
        (scratch / _INFO_FILE).write_text(json.dumps(info))
        if folder.exists() and _read(folder) is None:
            discard(folder)
        os.replace(scratch, folder)
    except OSError as error:
        if _read(folder) is None:  # otherwise another process was faster, with the same graph
            raise CacheError(
                f"cannot write the graph cache {root}: {error.strerror}",
                hint="free some disk space, or MEDUSA_HOME=/another/folder medusa ...",
            ) from error
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    _remove_superseded(root)
    return CachedGraph(folder / _GRAPH_FILE, tuple(requantised))


def _remove_superseded(root: Path) -> None:
    """Graphs of earlier builders, of whatever model and format. What a process has mapped stays readable for it."""
    for folder in root.iterdir():
        name = FOLDER_NAME.fullmatch(folder.name)
        if name is not None and int(name["version"]) < BUILDER_VERSION and folder.is_dir():
            with suppress(OSError):  # another process removes it too, or may and we may not
                discard(folder)


def discard(folder: Path) -> None:
    """Out of the way in one step: another process may be about to do the same, or to open it."""
    aside = Path(tempfile.mkdtemp(prefix=f"{SCRATCH}{os.getpid()}-", dir=folder.parent))
    try:
        os.replace(folder, aside / "removed")
    finally:
        shutil.rmtree(aside, ignore_errors=True)
