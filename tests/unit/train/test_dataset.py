"""Training sets survive kills, full disks and damage: a shard is complete or absent, and a broken one is named."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest

from medusakit.artifact import files
from medusakit.artifact.schema import Backbone
from medusakit.errors import DatasetError, RuntimeFailure
from medusakit.train.dataset import Dataset, ShardWriter
from medusakit.train.manifest import DatasetManifest, check_dataset, read_manifest
from medusakit.train.shards import Sample, Shard, group_of

WIDTH = 4


def manifest(seed: int = 0, fingerprint: str = "f" * 64, **settings: object) -> DatasetManifest:
    backbone = Backbone(name="tiny", fingerprint=fingerprint, hidden_size=WIDTH, vocab_size=50)
    return DatasetManifest(backbone=backbone, seed=seed, settings=settings)


def sample(number: int, *, prompt: int = 3, generated: int = 5, turn: int = 0) -> Sample:
    rng = np.random.default_rng(number)
    return Sample(
        rng.integers(0, 50, prompt + generated).astype(np.int32),
        prompt,
        rng.normal(size=(generated, WIDTH)).astype(np.float16),
        group=number,
        turn=turn,
    )


def fill(folder: Path, numbers: range, *, shard_tokens: int = 20) -> None:
    with ShardWriter(folder, manifest(), shard_tokens=shard_tokens) as writer:
        for number in numbers:
            if (number, 0) not in writer.finished:
                writer.add(sample(number, generated=3 + number % 4))


def test_what_is_written_is_read_back_row_for_row(tmp_path: Path) -> None:
    fill(tmp_path, range(11))
    data = Dataset([tmp_path])
    assert len(data) == 11 and len(data.shards) > 1
    assert data.num_tokens == sum(3 + n % 4 for n in range(11)) == read_manifest(tmp_path).num_tokens
    for number, found in enumerate(data):
        wanted = sample(number, generated=3 + number % 4)
        np.testing.assert_array_equal(found.ids, wanted.ids)
        np.testing.assert_array_equal(found.hidden, wanted.hidden)
        np.testing.assert_array_equal(found.gen, wanted.ids[3:])
        assert (found.prompt_len, found.group, found.turn) == (3, number, 0)
    assert isinstance(data[0].hidden.base, np.memmap) or isinstance(data[0].hidden, np.memmap)


def test_the_file_has_exactly_the_agreed_tensors(tmp_path: Path) -> None:
    from safetensors.numpy import load_file

    fill(tmp_path, range(3), shard_tokens=1000)
    tensors = load_file(tmp_path / "shard-00000.safetensors")
    assert {name: (value.dtype.name, value.shape) for name, value in tensors.items()} == {
        "ids": ("int32", (3 * 3 + 12,)),
        "offsets": ("int64", (4,)),
        "prompt_lens": ("int32", (3,)),
        "hidden": ("float16", (12, WIDTH)),
        "groups": ("int64", (3,)),
        "turns": ("int32", (3,)),
    }
    assert tensors["offsets"].tolist() == [0, 6, 13, 21]


def test_a_second_run_makes_only_what_is_missing(tmp_path: Path) -> None:
    fill(tmp_path, range(5))
    before = {p.name: p.stat().st_mtime_ns for p in tmp_path.glob("shard-*")}
    fill(tmp_path, range(9))
    assert [s.group for s in Dataset([tmp_path])] == list(range(9))
    assert {p.name: p.stat().st_mtime_ns for p in tmp_path.glob("shard-*") if p.name in before} == before


@pytest.mark.parametrize("moment", ["before-write", "mid-write", "after-rename", "after-manifest"])
def test_kill_9_at_any_moment_of_a_flush_loses_at_most_that_shard(tmp_path: Path, moment: str) -> None:
    script = textwrap.dedent(f"""
        import os, signal, sys
        from pathlib import Path
        from medusakit.train import dataset
        from medusakit.artifact import files
        sys.path.insert(0, {str(Path(__file__).parent)!r})
        import test_dataset as t
        die = lambda *a, **k: os.kill(os.getpid(), signal.SIGKILL)
        real_write, real_save, moment = files._write_synced, dataset.ShardWriter._save_manifest, {moment!r}
        shards = 0
        def write(path, data):
            global shards
            if path.name.startswith('.shard'):
                shards += 1
                if shards == 2 and moment == 'before-write': die()
                if shards == 2 and moment == 'mid-write': real_write(path, data[:len(data) // 2]); die()
            real_write(path, data)
        def save(self):
            if shards == 2 and moment == 'after-rename': die()
            real_save(self)
            if shards == 2 and moment == 'after-manifest': die()
        files._write_synced, dataset.ShardWriter._save_manifest = write, save
        t.fill(Path({str(tmp_path / "set")!r}), range(20))
    """)
    result = subprocess.run([sys.executable, "-c", script], check=False)
    assert result.returncode == -signal.SIGKILL
    for file in (tmp_path / "set").glob("shard-*.safetensors"):
        Shard(file)  # complete, or it would not be there
    fill(tmp_path / "set", range(20))
    assert sorted(s.group for s in Dataset([tmp_path / "set"])) == list(range(20))
    assert not list((tmp_path / "set").glob("*.tmp")) and not list((tmp_path / "set").glob(".*.tmp"))


def test_ctrl_c_saves_the_samples_that_are_finished(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), ShardWriter(tmp_path, manifest()) as writer:
        writer.add(sample(1))
        raise KeyboardInterrupt
    assert [s.group for s in Dataset([tmp_path])] == [1]


def test_a_full_disk_is_a_clear_error_and_the_run_continues_afterwards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(tmp_path, range(6))
    finished = check_dataset(tmp_path)
    real, written = files._write_synced, []

    def full(path: Path, data: bytes) -> None:
        written.append(path)
        path.write_bytes(data[:10])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files, "_write_synced", lambda p, d: full(p, d) if p.name.startswith(".shard") else real(p, d))
    with pytest.raises(RuntimeFailure, match="no space left while writing .*shard-") as caught:
        fill(tmp_path, range(30))
    assert "run the same command again" in str(caught.value) and written
    monkeypatch.undo()
    assert check_dataset(tmp_path) == finished
    assert not list(tmp_path.glob(".shard*"))
    fill(tmp_path, range(30))
    assert len(Dataset([tmp_path])) == 30


def test_a_really_full_file_size_limit(tmp_path: Path) -> None:
    """RLIMIT_FSIZE stands for a full disk: the kernel refuses the write in the middle of a shard."""
    script = textwrap.dedent(f"""
        import resource, signal, sys
        from pathlib import Path
        sys.path.insert(0, {str(Path(__file__).parent)!r})
        import test_dataset as t
        from medusakit.errors import RuntimeFailure
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (3000, 3000))
        try:
            t.fill(Path({str(tmp_path)!r}), range(100, 400), shard_tokens=1000)
        except RuntimeFailure as error:
            print(error.code, error.message)
            sys.exit(error.exit_code)
    """)
    done = subprocess.run([sys.executable, "-c", script], check=False, capture_output=True, text=True)
    assert done.returncode == 4 and "no space left while writing" in done.stdout, done.stderr
    assert read_manifest(tmp_path).num_samples == 0
    fill(tmp_path, range(4))
    assert len(Dataset([tmp_path])) == 4


@pytest.mark.parametrize("damage", ["flip", "cut", "remove", "garbage"])
def test_a_damaged_shard_is_named(tmp_path: Path, damage: str) -> None:
    fill(tmp_path, range(12))
    file = tmp_path / "shard-00001.safetensors"
    data = bytearray(file.read_bytes())
    if damage == "flip":
        data[-3] ^= 4
    changed = {"flip": bytes(data), "cut": bytes(data[:-7]), "garbage": b"\xff" * 40}.get(damage)
    file.unlink() if changed is None else file.write_bytes(changed)
    with pytest.raises(DatasetError, match=r"shard-00001\.safetensors"):
        Dataset([tmp_path])
    if damage != "flip":
        with pytest.raises(DatasetError, match=r"shard-00001\.safetensors"):
            Dataset([tmp_path], verify=False)
    file.unlink(missing_ok=True)
    fill(tmp_path, range(12))
    assert sorted(s.group for s in Dataset([tmp_path])) == list(range(12))


def test_a_set_is_continued_only_by_its_own_settings_and_model(tmp_path: Path) -> None:
    fill(tmp_path, range(2))
    for other, what in (
        (manifest(seed=1), "seed 0, now asked for 1"),
        (manifest(fingerprint="e" * 64), "model ffff"),
        (manifest(rows=4), "settings"),
    ):
        with pytest.raises(DatasetError, match=what):
            ShardWriter(tmp_path, other)


def test_two_writers_do_not_share_a_folder(tmp_path: Path) -> None:
    with ShardWriter(tmp_path, manifest()), pytest.raises(DatasetError, match="another process"):
        ShardWriter(tmp_path, manifest())
    ShardWriter(tmp_path, manifest()).__exit__()


def test_nan_states_are_refused(tmp_path: Path) -> None:
    bad = sample(1)
    bad.hidden[2, 1] = np.nan
    with ShardWriter(tmp_path, manifest()) as writer, pytest.raises(DatasetError, match="NaN"):
        writer.add(bad)
    assert read_manifest(tmp_path).num_samples == 0


def test_folders_of_two_models_do_not_mix(tmp_path: Path) -> None:
    fill(tmp_path / "a", range(2))
    with ShardWriter(tmp_path / "b", manifest(fingerprint="e" * 64)) as writer:
        writer.add(sample(1))
    with pytest.raises(DatasetError, match="another model"):
        Dataset([tmp_path / "a", tmp_path / "b"])
    with pytest.raises(DatasetError, match="not a training set"):
        Dataset([tmp_path / "nothing"])


def test_split_keeps_conversations_together_and_does_not_move_when_data_is_added(tmp_path: Path) -> None:
    with ShardWriter(tmp_path / "a", manifest()) as writer:
        for number in range(400):
            for turn in range(2):
                writer.add(Sample(sample(number).ids, 3, sample(number).hidden, group_of([number]), turn))
    data = Dataset([tmp_path / "a"])
    train, held = data.split(0.1)
    assert sorted([*train, *held]) == list(range(800))
    assert {data[i].group for i in train}.isdisjoint({data[i].group for i in held})
    assert 0.05 < len(held) / 800 < 0.15
    fill(tmp_path / "b", range(50))
    more = Dataset([tmp_path / "a", tmp_path / "b"])
    assert [i for i in more.split(0.1)[1] if i < 800] == list(held)
    assert set(data.split(0.1, seed=1)[1]) != set(held)


def test_a_folder_that_cannot_be_written_is_an_error_with_its_name(tmp_path: Path) -> None:
    (tmp_path / "set/.lock").mkdir(parents=True)
    with pytest.raises(RuntimeFailure, match="cannot write .*set"):
        ShardWriter(tmp_path / "set", manifest())


def test_a_folder_that_cannot_be_made_is_an_error_with_its_name(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RuntimeFailure, match="cannot write"):
        ShardWriter(tmp_path / "file" / "set", manifest())
    assert os.listdir(tmp_path) == ["file"]


def test_a_folder_without_data_names_the_command_that_fills_it(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match="is not a training set") as caught:
        Dataset([tmp_path / "work" / "distill"])
    assert caught.value.hint == f"medusa train distill --work {tmp_path / 'work'}"
