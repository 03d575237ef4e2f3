"""Built graphs on disk, one folder a model and weight format."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from medusakit.errors import CacheError
from medusakit.models.spec import WeightSource

_INFO_FILE = "info.json"
BUILDER_VERSION = 3  # part of every cache key: raise it when the graph of the same weights changes


@dataclass(frozen=True, slots=True)
class CachedGraph:
    """A graph file and the names of the tensors that were rounded again for its format."""

    path: Path
    requantised: tuple[str, ...]


def cached_graph(source: WeightSource, weights: str, cache_dir: Path | None) -> CachedGraph:
    """The graph, built now if the cache has none. Raises CacheError where the cache cannot be written."""
    root = cache_dir or _default_root()
    folder = root / f"{source.fingerprint[:24]}-{weights}-v{BUILDER_VERSION}"
    if not (folder / "model.onnx").exists():
        _build(source, weights, root, folder)
    info = json.loads((folder / _INFO_FILE).read_text())
    return CachedGraph(folder / "model.onnx", tuple(info["requantised"]))


def _default_root() -> Path:
    from medusakit.models.store import home

    return home() / "graphs"


def _build(source: WeightSource, weights: str, root: Path, folder: Path) -> None:
    from medusakit.runtimes.onnx.decoder import build_decoder  # late: the onnx package is only needed to build
    from medusakit.runtimes.onnx.graph import GraphWriter

    try:
        root.mkdir(parents=True, exist_ok=True)
        scratch = Path(tempfile.mkdtemp(prefix=".building-", dir=root))
    except OSError as error:
        raise CacheError(
            f"cannot write the graph cache {root}: {error.strerror}",
            hint="MEDUSA_HOME=/a/folder/you/can/write medusa ...",
        ) from error
    try:
        with GraphWriter(scratch) as graph:
            requantised = build_decoder(source, weights, graph)
        (scratch / _INFO_FILE).write_text(json.dumps({"weights": weights, "requantised": requantised}))
        os.replace(scratch, folder)
    except OSError as error:
        if not (folder / "model.onnx").exists():  # otherwise another process was faster, with the same graph
            raise CacheError(
                f"cannot write the graph cache {root}: {error.strerror}",
                hint="free some disk space, or MEDUSA_HOME=/another/folder medusa ...",
            ) from error
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
