"""Graphs on disk: built once, atomically, under a key of weights, format and builder; clear errors otherwise."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest

from medusakit.errors import CacheError, ModelError
from medusakit.runtimes.onnx import cache, decoder, exactness, graph
from medusakit.runtimes.onnx.cache import cached_graph
from medusakit.runtimes.onnx.graph import GraphWriter
from medusakit.runtimes.reference_source import random_source


@pytest.fixture
def source():
    return random_source(0, 32)


def test_a_graph_is_built_once(tmp_path, source, monkeypatch):
    first = cached_graph(source, "f32", tmp_path)
    assert first.path.exists() and first.requantised == ()
    monkeypatch.setattr(cache, "_build", lambda *_: pytest.fail("built again"))
    assert cached_graph(source, "f32", tmp_path) == first


def test_formats_models_and_builders_have_their_own(tmp_path, source, monkeypatch):
    paths = {cached_graph(source, "f32", tmp_path).path, cached_graph(source, "int8", tmp_path).path}
    paths.add(cached_graph(random_source(1, 32), "f32", tmp_path).path)
    assert len(paths) == 3 and all(path.exists() for path in paths)
    monkeypatch.setattr(cache, "BUILDER_VERSION", 10_000)
    assert cached_graph(source, "f32", tmp_path).path not in paths


def test_building_removes_what_earlier_builders_left_and_nothing_else(tmp_path, source, monkeypatch):
    before, current = cache.BUILDER_VERSION - 1, cache.BUILDER_VERSION
    monkeypatch.setattr(cache, "BUILDER_VERSION", before)
    old = [cached_graph(made, "f32", tmp_path) for made in (source, random_source(1, 32))]
    mapped = np.memmap(old[0].path.parent / "weights.bin", np.uint8, "r")
    content = bytes(mapped)
    monkeypatch.setattr(cache, "BUILDER_VERSION", current)
    others = [tmp_path / name for name in ("notes", "abc-f32-v1.old", f"abc-f32-v{current + 1}", f"abc-f32-v{current}")]
    for folder in others:
        folder.mkdir()
    (tmp_path / "abc-f32-v1").write_text("no graph")
    kept = [cached_graph(random_source(2, 32), weights, tmp_path).path.parent for weights in ("f32", "int4")]
    assert sorted(tmp_path.iterdir()) == sorted([*kept, *others, tmp_path / "abc-f32-v1"])
    assert bytes(mapped) == content, "whoever reads an old graph can go on"


def test_old_graphs_that_cannot_be_removed_stop_nobody(tmp_path, source, monkeypatch):
    def refuse(*_):
        raise PermissionError(13, "Permission denied")

    (tmp_path / "abc-f32-v1").mkdir()
    monkeypatch.setattr(cache, "discard", refuse)
    assert cached_graph(source, "f32", tmp_path).path.exists()


def test_what_is_noted_beside_a_graph_does_not_make_it_old(tmp_path, source, monkeypatch):
    first = cached_graph(source, "int4", tmp_path)
    assert exactness.remembered(first.path.parent, 2, lambda: True)
    monkeypatch.setattr(cache, "_build", lambda *_: pytest.fail("built again"))
    assert cached_graph(source, "int4", tmp_path) == first


def test_what_was_rounded_again_is_remembered(tmp_path, source):
    names = cached_graph(source, "int4", tmp_path).requantised
    assert "layers.0.gate" in names and "lm_head" in names
    assert cached_graph(source, "int4", tmp_path).requantised == names


def test_a_build_that_fails_leaves_nothing(tmp_path, source, monkeypatch):
    def fail(*_):
        raise ModelError("NaN in a weight")

    monkeypatch.setattr(decoder, "build_decoder", fail)
    with pytest.raises(ModelError):
        cached_graph(source, "f32", tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_disk_that_fills_up_is_named(tmp_path, source, monkeypatch):
    def fail(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(decoder, "build_decoder", fail)
    with pytest.raises(CacheError, match="No space left") as error:
        cached_graph(source, "f32", tmp_path)
    assert error.value.hint is not None
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs a device that is always full")
def test_a_full_disk_is_named_by_the_writer_of_weights(tmp_path, source, monkeypatch):
    class Full(GraphWriter):
        def __init__(self, folder):
            super().__init__(folder)
            self._weights.close()
            self._weights = open("/dev/full", "wb", buffering=0)  # noqa: SIM115  closed by the writer

    monkeypatch.setattr(graph, "GraphWriter", Full)
    with pytest.raises(CacheError, match="No space left"):
        cached_graph(source, "f32", tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_cache_that_cannot_be_written_is_named(tmp_path, source):
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    with pytest.raises(CacheError, match=str(blocked)):
        cached_graph(source, "f32", blocked / "graphs")


def test_another_process_may_be_faster(tmp_path, source, monkeypatch):
    """The folder appears while we build: its graph is as good as ours."""
    real, other = os.replace, tmp_path / "other"

    def replaced(scratch, folder):
        real(cached_graph(source, "f32", other).path.parent, folder)
        raise OSError(39, "Directory not empty")

    other.mkdir()
    cached_graph(source, "f32", other)
    monkeypatch.setattr(cache.os, "replace", replaced)
    found = cached_graph(source, "f32", tmp_path / "mine")
    assert found.path.exists()
    assert [path.name for path in (tmp_path / "mine").iterdir()] == [found.path.parent.name]


def test_info_is_readable_json(tmp_path, source):
    folder = cached_graph(source, "int8", tmp_path).path.parent
    assert json.loads((folder / "info.json").read_text())["weights"] == "int8"


@pytest.mark.parametrize(
    ("name", "content"),
    [("info.json", b"{"), ("info.json", b"[]"), ("info.json", None), ("model.onnx", b""), ("model.onnx", None),
     ("weights.bin", b"short"), ("weights.bin", None)],
)  # fmt: skip
def test_a_damaged_graph_is_built_again(tmp_path, source, name, content):
    whole = cached_graph(source, "int8", tmp_path)
    file = whole.path.parent / name
    before = {path.name: path.read_bytes() for path in whole.path.parent.iterdir()}
    file.unlink() if content is None else file.write_bytes(content)
    assert cached_graph(source, "int8", tmp_path) == whole
    assert {path.name: path.read_bytes() for path in whole.path.parent.iterdir()} == before
    assert list(tmp_path.iterdir()) == [whole.path.parent]


def test_what_a_killed_build_left_is_removed_and_what_a_running_one_writes_is_not(tmp_path, source):
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    dead, running = tmp_path / f".building-{process.pid}-a", tmp_path / f".building-{os.getpid()}-b"
    for folder in (dead, running):
        folder.mkdir()
    cached_graph(source, "f32", tmp_path)
    assert not dead.exists() and running.exists()
