"""An artifact is complete, unchanged and for this model, or it is refused with a reason."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import safetensors.numpy

from medusakit.artifact import io as artifact_io
from medusakit.artifact.io import check_fits, check_tensors, load_artifact, save_artifact
from medusakit.artifact.schema import Backbone, CalibratedTree, DrafterConfig, Provenance, TreeNode
from medusakit.errors import ArtifactError, ArtifactMismatchError, RuntimeFailure

TREE = CalibratedTree(
    nodes=(
        TreeNode(path=(0,), acceptance=0.5),
        TreeNode(path=(0, 0), acceptance=0.3),
        TreeNode(path=(1,), acceptance=0.1),
    ),
    num_positions=1000,
    data="held-out",
)
BACKBONE = Backbone(name="tiny", fingerprint="ab" * 32, hidden_size=8, vocab_size=32, tokenizer_hash="t0")
PROVENANCE = Provenance(
    created="2026-11-29",
    medusakit="0.1.0",
    train_tokens=123,
    recipe={"git": "abc", "settings": {"epochs": 2}, "licenses": {"gsm8k": "MIT"}},
    metrics={"top1_by_depth": [0.5, 0.4], "tau_by_budget": {"4": 1.7}, "verdict": "worth serving"},
)


def save(path: Path, *, tree: CalibratedTree = TREE, depth: int = 2, **tensors: np.ndarray) -> artifact_io.Artifact:
    config = DrafterConfig(family="medusa", depth=depth, draft_vocab_size=0, params={"blocks": 1})
    return save_artifact(
        path,
        backbone=BACKBONE,
        drafter=config,
        tree=tree,
        provenance=PROVENANCE,
        tensors=tensors or {"w": np.arange(16, dtype=np.float32).reshape(2, 8), "ids": np.arange(4, dtype=np.int32)},
    )


def source(**changes: object) -> SimpleNamespace:
    spec = SimpleNamespace(hidden_size=8, vocab_size=32, name="tiny")
    fingerprint = changes.pop("fingerprint", BACKBONE.fingerprint)
    return SimpleNamespace(spec=SimpleNamespace(**{**vars(spec), **changes}), fingerprint=fingerprint)


def test_saved_artifact_loads_equal_with_float16_tensors_and_card(tmp_path: Path) -> None:
    saved = save(tmp_path / "heads")
    loaded = load_artifact(tmp_path / "heads")
    assert loaded.manifest == saved.manifest and loaded.tree == TREE
    tensors = loaded.tensors()
    assert tensors["w"].dtype == np.float16 and tensors["ids"].dtype == np.int32
    np.testing.assert_array_equal(tensors["w"], np.arange(16).reshape(2, 8))
    assert loaded.topology(3).rank_paths == ((), (0,), (0, 0))
    card = (tmp_path / "heads/README.md").read_text()
    for fact in (
        "medusa drafter for tiny",
        "ab" * 32,
        "| 2 | 0.400 |",
        "| 4 | 1.70 |",
        "gsm8k (MIT)",
        "123",
        "| git | `abc` |",
        '"epochs": 2',
    ):
        assert fact in card


def test_saving_replaces_an_artifact_but_nothing_else(tmp_path: Path) -> None:
    save(tmp_path / "heads")
    save(tmp_path / "heads", w=np.ones((1, 1), np.float32))
    assert load_artifact(tmp_path / "heads").tensors()["w"].shape == (1, 1)
    (tmp_path / "home").mkdir()
    (tmp_path / "home/letter.txt").write_text("dear")
    with pytest.raises(ArtifactError, match="will not be replaced"):
        save(tmp_path / "home")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["heads", "home"]


@pytest.mark.parametrize("name", ["drafter.safetensors", "tree.json"])
def test_a_changed_file_is_named(tmp_path: Path, name: str) -> None:
    save(tmp_path / "heads")
    file = tmp_path / "heads" / name
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)
    with pytest.raises(ArtifactError, match=rf"{name} was changed or damaged"):
        load_artifact(tmp_path / "heads")


def test_missing_file_and_missing_folder(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match="nowhere is not a heads folder: it does not exist"):
        load_artifact(tmp_path / "nowhere")
    save(tmp_path / "heads")
    (tmp_path / "heads/tree.json").unlink()
    with pytest.raises(ArtifactError, match=r"tree\.json is missing"):
        load_artifact(tmp_path / "heads")


def edit_manifest(folder: Path, **changes: object) -> None:
    file = folder / "medusa.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))


def test_manifest_is_strict(tmp_path: Path) -> None:
    save(tmp_path / "heads")
    edit_manifest(tmp_path / "heads", provenanse={})
    with pytest.raises(ArtifactError, match="unknown key provenanse, did you mean provenance"):
        load_artifact(tmp_path / "heads")
    save(tmp_path / "heads")
    edit_manifest(tmp_path / "heads", schema_version=2)
    with pytest.raises(ArtifactError, match="schema_version is 2, this version reads 1"):
        load_artifact(tmp_path / "heads")
    (tmp_path / "heads/medusa.json").write_text("{")
    with pytest.raises(ArtifactError, match="medusa.json"):
        load_artifact(tmp_path / "heads")


def test_a_manifest_cannot_point_outside_its_folder(tmp_path: Path) -> None:
    save(tmp_path / "heads")
    (tmp_path / "outside").write_text("x")
    files = json.loads((tmp_path / "heads/medusa.json").read_text())["files"]
    edit_manifest(tmp_path / "heads", files={**files, "../outside": "0"})
    with pytest.raises(ArtifactError, match="missing from the heads folder"):
        load_artifact(tmp_path / "heads")


def test_a_tree_deeper_than_the_heads_or_no_tree_at_all_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match="is 2 deep, but the drafter has 1 heads"):
        save(tmp_path / "heads", depth=1)
    orphan = CalibratedTree(nodes=(TreeNode(path=(0, 0), acceptance=0.1),), num_positions=1)
    with pytest.raises(ArtifactError, match="not a tree"):
        save(tmp_path / "heads", tree=orphan)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("rank", [-1, 10**7])
def test_a_rank_that_no_drafter_has_is_refused(rank: int, tmp_path: Path) -> None:
    tree = CalibratedTree(nodes=(TreeNode(path=(rank,), acceptance=0.1),), num_positions=1)
    with pytest.raises(ArtifactError, match=rf"ranks from {rank} to {rank}, expected 0 to"):
        save(tmp_path / "heads", tree=tree)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("bad", [np.nan, np.inf, 1e6])
def test_values_that_float16_cannot_hold_leave_nothing_behind(tmp_path: Path, bad: float) -> None:
    with pytest.raises(ArtifactError, match="tensor w"):
        save(tmp_path / "heads", w=np.array([1.0, bad], np.float32))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("failing", ["drafter.safetensors", "medusa.json", "README.md"])
def test_a_full_disk_keeps_the_old_artifact(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str) -> None:
    save(tmp_path / "heads")
    before = {p.name: p.read_bytes() for p in (tmp_path / "heads").iterdir()}
    real = Path.open

    def full(self: Path, mode: str = "r", *args: object, **kwargs: object) -> object:
        if self.name == failing and "w" in mode:
            raise OSError(28, "No space left on device")
        return real(self, mode, *args, **kwargs)  # type: ignore[call-overload]

    monkeypatch.setattr(Path, "open", full)
    with pytest.raises(RuntimeFailure, match="no space left"):
        save(tmp_path / "heads", w=np.zeros((3, 3), np.float32))
    monkeypatch.undo()
    assert {p.name: p.read_bytes() for p in (tmp_path / "heads").iterdir()} == before
    assert [p.name for p in tmp_path.iterdir()] == ["heads"]


def test_a_folder_in_the_way_of_a_parent_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(RuntimeFailure, match="cannot write"):
        save(tmp_path / "file" / "heads")


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"hidden_size": 16}, "hidden size 8 .* has 16"),
        ({"vocab_size": 64}, "vocabulary 32 .* has 64"),
        ({"fingerprint": "cd" * 32}, "fingerprint abab.* has cdcd"),
    ],
)
def test_heads_of_another_model_name_both_values(tmp_path: Path, change: dict[str, object], text: str) -> None:
    artifact = save(tmp_path / "heads")
    check_fits(artifact, source())  # type: ignore[arg-type]
    with pytest.raises(ArtifactMismatchError, match=text):
        check_fits(artifact, source(**change))  # type: ignore[arg-type]


def test_another_tokenizer_is_a_mismatch(tmp_path: Path) -> None:
    artifact = save(tmp_path / "heads")
    check_fits(artifact, source(), tokenizer_hash="t0")  # type: ignore[arg-type]
    with pytest.raises(ArtifactMismatchError, match="tokenizer hash t0 .* has t1"):
        check_fits(artifact, source(), tokenizer_hash="t1")  # type: ignore[arg-type]
    silent = replace(
        artifact,
        manifest=artifact.manifest.model_copy(update={"backbone": BACKBONE.model_copy(update={"tokenizer_hash": ""})}),
    )
    check_fits(silent, source(), tokenizer_hash="t1")  # type: ignore[arg-type]


def test_missing_extra_and_misshapen_tensors(tmp_path: Path) -> None:
    artifact = save(tmp_path / "heads", w=np.ones((2, 8), np.float32), draft_ids=np.arange(4, dtype=np.int32))
    tensors = artifact.tensors()
    check_tensors(artifact, tensors, {"w": (2, 8), "draft_ids": (4,)})
    with pytest.raises(ArtifactError, match="tensor b is missing"):
        check_tensors(artifact, tensors, {"w": (2, 8), "draft_ids": (4,), "b": (1,)})
    with pytest.raises(ArtifactError, match="unexpected tensor draft_ids"):
        check_tensors(artifact, tensors, {"w": (2, 8)})
    with pytest.raises(ArtifactError, match=r"shape \[2, 8\]"):
        check_tensors(artifact, tensors, {"w": (8, 2), "draft_ids": (4,)})


@pytest.mark.parametrize("dtype", ["float32", "float64", "int8"])
def test_a_tensor_of_another_width_is_named(tmp_path: Path, dtype: str) -> None:
    """A file whose hash the manifest vouches for, but which holds w in another width."""
    folder = save(tmp_path / "heads").path
    content = safetensors.numpy.save({"w": np.ones((2, 8), dtype)})
    (folder / "drafter.safetensors").write_bytes(content)
    files = json.loads((folder / "medusa.json").read_text())["files"]
    edit_manifest(folder, files={**files, "drafter.safetensors": hashlib.sha256(content).hexdigest()})
    artifact = load_artifact(folder)
    with pytest.raises(ArtifactError, match=f"tensor w is stored as {dtype}, expected float16") as caught:
        check_tensors(artifact, artifact.tensors(), {"w": (2, 8)})
    assert caught.value.hint


@pytest.mark.parametrize("ids", [[0, 10**6], [-1, 0], [3, 3], [5, 2], [0.0, 1.0]])
def test_a_draft_vocabulary_holds_token_ids_in_rising_order(ids: list[float], tmp_path: Path) -> None:
    artifact = save(tmp_path / "heads")
    with pytest.raises(ArtifactError, match="must be token ids from 0 to"):
        check_tensors(artifact, {"draft_ids": np.array(ids)}, {"draft_ids": (2,)})
    check_tensors(artifact, {"draft_ids": np.array([0, 2])}, {"draft_ids": (2,)})


@pytest.mark.parametrize("name", ["x" * 5000, "a\x00b", ""])
def test_what_can_be_no_folder_is_no_heads_folder(name: str) -> None:
    with pytest.raises(ArtifactError, match="not a heads folder"):
        load_artifact(name)
