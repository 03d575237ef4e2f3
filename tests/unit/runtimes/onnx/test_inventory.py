"""The graph cache's disk space: what is there, and what goes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from medusakit.errors import CacheError
from medusakit.runtimes.onnx import inventory
from medusakit.runtimes.onnx.cache import BUILDER_VERSION
from medusakit.runtimes.onnx.inventory import built_graphs, graphs_of, remove_graphs

MODEL, OTHER = "a" * 64, "b" * 64


def put(root: Path, fingerprint: str, weights: str = "f32", version: int = BUILDER_VERSION, size: int = 100) -> Path:
    folder = root / f"{fingerprint[:24]}-{weights}-v{version}"
    folder.mkdir(parents=True)
    (folder / "weights.bin").write_bytes(b"x" * size)
    (folder / "info.json").write_bytes(b"{}")
    return folder


def test_graphs_are_listed_with_what_their_names_say(tmp_path: Path) -> None:
    put(tmp_path, MODEL, "int4", BUILDER_VERSION - 1, 50)
    put(tmp_path, OTHER, "int8")
    (tmp_path / "notes").mkdir()
    found = [(graph.weights, graph.version, graph.num_bytes, graph.current) for graph in built_graphs(tmp_path)]
    assert found == [("int4", BUILDER_VERSION - 1, 52, False), ("int8", BUILDER_VERSION, 102, True)]
    assert built_graphs(tmp_path / "nothing") == []


def test_a_models_graphs_are_those_of_every_format_and_version(tmp_path: Path) -> None:
    own = {put(tmp_path, MODEL), put(tmp_path, MODEL, "int8"), put(tmp_path, MODEL, version=1)}
    put(tmp_path, OTHER)
    assert {graph.path for graph in graphs_of(MODEL, tmp_path)} == own


def test_removing_frees_what_was_asked_for_and_what_killed_builds_left(tmp_path: Path) -> None:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    (tmp_path / f".building-{process.pid}-x").mkdir()
    put(tmp_path, MODEL)
    kept = put(tmp_path, OTHER)
    assert remove_graphs(graphs_of(MODEL, tmp_path), tmp_path) == 102
    assert list(tmp_path.iterdir()) == [kept]


def test_one_that_is_gone_already_does_not_count(tmp_path: Path) -> None:
    put(tmp_path, MODEL)
    graphs = built_graphs(tmp_path)
    assert (remove_graphs(graphs, tmp_path), remove_graphs(graphs, tmp_path)) == (102, 0)
    assert list(tmp_path.iterdir()) == []


def test_a_disk_that_refuses_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(folder: Path) -> None:
        raise PermissionError(13, os.strerror(13))

    put(tmp_path, MODEL)
    monkeypatch.setattr(inventory, "discard", refuse)
    with pytest.raises(CacheError, match="cannot delete .*-f32-.*: Permission denied"):
        remove_graphs(built_graphs(tmp_path), tmp_path)
