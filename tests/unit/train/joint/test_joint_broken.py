"""Broken inputs of joint training: nothing of anybody else's is replaced, and what is damaged is named."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch

from joint_toys import HEADS, model_folder
from medusakit.artifact.io import save_artifact
from medusakit.artifact.schema import Backbone, CalibratedTree, Provenance, TreeNode
from medusakit.errors import DatasetError, RuntimeFailure, UsageError
from medusakit.train.checkpoint import Checkpoint
from medusakit.train.dataset import ShardWriter
from medusakit.train.joint.merge import check_out, save_merged
from medusakit.train.joint.quality import _kept
from medusakit.train.joint.stage import TRAINED, read_trained
from medusakit.train.manifest import DatasetManifest
from medusakit.train.pipeline import Pipeline
from medusakit.train.place import open_model
from medusakit.train.recipe import Recipe
from medusakit.train.shards import Sample


def heads_at(folder: Path, **metrics: Any) -> None:
    save_artifact(
        folder,
        backbone=Backbone(name="tiny", fingerprint="0" * 64, hidden_size=8, vocab_size=32),
        drafter=HEADS.drafter(32),
        tree=CalibratedTree(nodes=(TreeNode(path=(0,), acceptance=0.5),), num_positions=9, data="held-out"),
        tensors={"w": np.zeros((2, 8), np.float32)},
        provenance=Provenance(created="2026-11-30", medusakit="0", train_tokens=1, metrics=metrics),
    )


def test_only_what_an_earlier_run_wrote_is_replaced(tmp_path: Path) -> None:
    model, out = tmp_path / "m", tmp_path / "out"
    model.mkdir()
    (model / "config.json").write_text("{}")
    (out / "other").mkdir(parents=True)
    (tmp_path / "file").write_text("x")
    with_heads = tmp_path / "with heads"  # as people put heads beside a model
    heads_at(with_heads / "medusa")
    for taken in (model, out, tmp_path / "file", with_heads, tmp_path):
        with pytest.raises(UsageError, match="will not be replaced"):
            check_out(taken, model)
    (out / "other").rmdir()
    check_out(out, model)
    check_out(tmp_path / "new" / "folder", model)
    heads_at(out / "medusa", joint=True)
    check_out(out, model)
    with pytest.raises(UsageError, match="will not be replaced"):
        check_out(out, out)  # tuned again, and written onto itself
    with pytest.raises(RuntimeFailure, match="cannot write"):
        check_out(tmp_path / "file" / "out", model)


def test_another_models_answers_are_refused(tmp_path: Path) -> None:
    """Of the same width: nothing else would show it."""
    model_folder(tmp_path / "m")
    recipe = Recipe(model=str(tmp_path / "m"), heads=HEADS)
    pipeline = Pipeline(recipe, open_model(recipe, threads=1, offline=True), tmp_path / "work", tmp_path / "out")
    backbone = pipeline._backbone.model_copy(update={"name": "twin", "fingerprint": "1" * 64})
    manifest = DatasetManifest(backbone=backbone, seed=0, settings={})
    with ShardWriter(tmp_path / "work" / "distill", manifest) as writer:
        writer.add(Sample(np.arange(6, dtype=np.int32), 2, np.zeros((4, backbone.hidden_size), np.float16), 1))
    (tmp_path / "work" / "distill.done.json").write_text('{"inputs": {}, "result": {}}')
    with pytest.raises(DatasetError, match="those of twin"):
        pipeline.run("heads")
    with pytest.raises(DatasetError, match="those of twin"):
        pipeline.run("joint")


class Counts:
    def __init__(self) -> None:
        self.number = torch.arange(1000)

    def state_dict(self) -> dict[str, Any]:
        return {"number": self.number}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.number = state["number"]


@pytest.mark.parametrize("size", [0, 1, 100, 4000, -1])
def test_a_checkpoint_that_is_cut_short_is_named(tmp_path: Path, size: int) -> None:
    checkpoint = Checkpoint(tmp_path / "joint-0.pt", {"a": 1})
    checkpoint.save(Counts())
    checkpoint.restore(Counts())
    data = (tmp_path / "joint-0.pt").read_bytes()
    (tmp_path / "joint-0.pt").write_bytes(data[:size])
    with pytest.raises(DatasetError, match=r"joint-0\.pt is damaged") as caught:
        checkpoint.restore(Counts())
    assert caught.value.hint and caught.value.hint.startswith(f"rm {tmp_path}")


@pytest.mark.parametrize("content", [{"other": 1}, [1, 2], 5])
def test_a_file_that_is_no_checkpoint_is_named(tmp_path: Path, content: Any) -> None:
    torch.save(content, tmp_path / "joint-0.pt")
    with pytest.raises(DatasetError, match="is damaged"):
        Checkpoint(tmp_path / "joint-0.pt", {}).restore(Counts())


@pytest.mark.parametrize("cut", [lambda data: b"", lambda data: data[:20], lambda data: data[:-3]])
def test_what_was_trained_and_is_damaged_is_named_and_scores_are_made_again(
    tmp_path: Path, cut: Callable[[bytes], bytes]
) -> None:
    at: Any = SimpleNamespace(work=tmp_path)
    data = safetensors.torch.save({"w": torch.zeros(100)})
    (tmp_path / TRAINED).write_bytes(cut(data))
    with pytest.raises(DatasetError, match="is damaged"):
        read_trained(at)
    made = []

    def make() -> dict[str, np.ndarray]:
        made.append(1)
        return {"ids": np.arange(100)}

    kept = _kept(tmp_path / "drawn.npz", "key", make)
    assert np.array_equal(_kept(tmp_path / "drawn.npz", "key", make)["ids"], kept["ids"]) and len(made) == 1
    (tmp_path / "drawn.npz").write_bytes(cut((tmp_path / "drawn.npz").read_bytes()))
    assert np.array_equal(_kept(tmp_path / "drawn.npz", "key", make)["ids"], kept["ids"]) and len(made) == 2


def test_a_full_disk_is_no_fault_of_the_program(tmp_path: Path) -> None:
    class Adapted:
        config = SimpleNamespace()

        def merge_and_unload(self) -> Any:
            return self

        def save_pretrained(self, folder: Path) -> None:
            raise safetensors.SafetensorError("I/O error: No space left on device")

    with pytest.raises(RuntimeFailure, match="No space left"):
        save_merged(Adapted(), model_folder(tmp_path / "m"), tmp_path)
