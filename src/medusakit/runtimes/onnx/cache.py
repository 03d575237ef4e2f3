"""Built graphs on disk, one folder a model and weight format."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

from medusakit.errors import CacheError
from medusakit.models.spec import WeightSource

BUILDER_VERSION = 1  # part of every cache key: raise it when the graph of the same weights changes


def cached_graph(source: WeightSource, weights: str, cache_dir: Path | None) -> Path:
    """Path of the graph file, built now if the cache has none. Raises CacheError where the cache cannot be written."""
    root = cache_dir or _default_root()
    folder = root / f"{source.fingerprint[:24]}-{weights}-v{BUILDER_VERSION}"
    if not (folder / "model.onnx").exists():
        _build(source, weights, root, folder)
    return folder / "model.onnx"


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
        raise CacheError(f"cannot write the graph cache {root}: {error.strerror}",
                         hint="MEDUSA_HOME=/a/folder/you/can/write medusa ...") from error
    try:
        build_decoder(source, GraphWriter(scratch))
        os.replace(scratch, folder)
    except OSError as error:
        if not (folder / "model.onnx").exists():  # otherwise another process was faster, with the same graph
            raise CacheError(f"cannot write the graph cache {root}: {error.strerror}",
                             hint="free some disk space, or MEDUSA_HOME=/another/folder medusa ...") from error
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
