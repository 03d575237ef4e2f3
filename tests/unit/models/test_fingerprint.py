"""Fingerprints: content in, the same string on every machine out, computed once."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

import pytest

from medusakit.errors import ModelError
from medusakit.models import fingerprint
from medusakit.models.fingerprint import fingerprint_files


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "home"
    monkeypatch.setenv("MEDUSA_HOME", str(folder))
    return folder


def test_one_file_is_its_sha256(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"weights")
    assert fingerprint_files([tmp_path / "a"]) == hashlib.sha256(b"weights").hexdigest()


def test_shards_do_not_depend_on_the_folder_or_the_order(tmp_path: Path) -> None:
    results = []
    for name in ("x", "y"):
        folder = tmp_path / name
        folder.mkdir()
        for shard in "ab":
            (folder / shard).write_bytes(shard.encode())
        files = [folder / "a", folder / "b"]
        results.append(fingerprint_files(files if name == "x" else files[::-1]))
    assert results[0] == results[1]
    (tmp_path / "x" / "b").write_bytes(b"c")
    assert fingerprint_files([tmp_path / "x" / "a", tmp_path / "x" / "b"]) != results[0]


def test_a_file_is_hashed_once_until_it_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"one")
    first = fingerprint_files([path])
    monkeypatch.setattr(fingerprint, "sha256_file", lambda path: "hashed again")
    assert fingerprint_files([path]) == first
    os.utime(path, (1, 1))
    assert fingerprint_files([path]) == "hashed again"


def test_a_damaged_or_unwritable_memory_is_no_error(tmp_path: Path, home: Path) -> None:
    (tmp_path / "a").write_bytes(b"w")
    expected = hashlib.sha256(b"w").hexdigest()
    home.mkdir()
    (home / "fingerprints.json").write_text("not json")
    assert fingerprint_files([tmp_path / "a"]) == expected
    (home / "fingerprints.json").unlink()
    home.rmdir()
    home.write_text("a file")
    assert fingerprint_files([tmp_path / "a"]) == expected


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="cannot read .*gone"):
        fingerprint_files([tmp_path / "gone"])


@pytest.mark.parametrize("remembered", [5, None, "", "../../x", ["a"], "0" * 63])
def test_a_damaged_memory_is_not_believed(remembered: object, home: Path, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"weights")
    expected = fingerprint_files([tmp_path / "a"])
    memory = home / "fingerprints.json"
    memory.write_text(json.dumps(dict.fromkeys(json.loads(memory.read_text()), remembered)))
    assert fingerprint_files([tmp_path / "a"]) == expected
