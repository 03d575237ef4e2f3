"""From names to files, in the documented order, with an error that names each step."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import huggingface_hub
import pytest
from huggingface_hub import errors

from medusakit.errors import ModelError
from medusakit.models import resolve as resolve_module
from medusakit.models.hub import HubId, parse_hub_id
from medusakit.models.resolve import open_weights, resolve
from tiny import write_gguf, write_hf

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture(autouse=True)
def isolated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty MEDUSA_HOME, an empty hub cache, no network."""
    monkeypatch.setenv("MEDUSA_HOME", str(tmp_path / "home"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    for key in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"):
        monkeypatch.delenv(key, raising=False)

    def refuse(*args: object, **more: object) -> None:
        raise OSError("no network in tests")

    monkeypatch.setattr(socket.socket, "connect", refuse)


def hub_answers(monkeypatch: pytest.MonkeyPatch, answer: Callable[[], Any]) -> None:
    monkeypatch.setattr(huggingface_hub.HfApi, "model_info", lambda self, repo, **more: answer())


def listing(*names: str) -> Callable[[], Any]:
    return lambda: SimpleNamespace(siblings=[SimpleNamespace(rfilename=name) for name in names])


def http_error(kind: type[errors.HfHubHTTPError]) -> Callable[[], Any]:
    def answer() -> Any:
        # without its constructor, which wants a response of whichever HTTP library the version uses
        error = kind.__new__(kind)
        error.args = ("refused",)
        raise error

    return answer


def cached_snapshot(tmp_path: Path, repo: str) -> Path:
    """The folder that a finished download of main would have left in the hub's cache."""
    root = tmp_path / "hub" / f"models--{repo.replace('/', '--')}"
    (root / "refs").mkdir(parents=True)
    (root / "refs" / "main").write_text(COMMIT)
    folder = root / "snapshots" / COMMIT
    folder.mkdir(parents=True)
    return folder


def test_a_file_and_a_folder_by_path(tmp_path: Path) -> None:
    file, folder = write_gguf(tmp_path / "m.gguf", "llama"), write_hf(tmp_path / "m", "llama")
    assert resolve(str(file)).kind == "gguf" and resolve(str(folder)).kind == "hf"
    ours = open_weights(resolve(str(file)))
    assert ours.spec.family == open_weights(resolve(str(folder))).spec.family == "llama"


def test_metadata_is_that_of_the_gguf_file(tmp_path: Path) -> None:
    file = write_gguf(tmp_path / "m.gguf", "qwen3")
    assert resolve(str(file)).metadata()["general.architecture"] == "qwen3"


def test_a_folder_with_one_gguf_is_that_file_and_with_two_is_ambiguous(tmp_path: Path) -> None:
    file = write_gguf(tmp_path / "a.gguf", "llama")
    assert resolve(str(tmp_path)).path == file
    (tmp_path / "b.gguf").touch()
    with pytest.raises(ModelError, match=r"2 GGUF files: a\.gguf, b\.gguf"):
        resolve(str(tmp_path))


def test_an_empty_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(ModelError, match="neither config.json"):
        resolve(str(tmp_path / "empty"))


def test_a_pipe_or_a_device_is_no_model(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ModelError, match="neither a file nor a folder"):
        resolve(str(tmp_path / "pipe"))


@pytest.mark.parametrize("name", ["", " ", "x" * 5000, "a\0b", "x" * 300 + "/m.gguf"])
def test_names_that_no_file_can_have_are_not_found(name: str) -> None:
    with pytest.raises(ModelError, match="no model .* was found"):
        resolve(name)


def test_an_alias_goes_before_a_path_of_the_same_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_hf(tmp_path / "smollm2", "llama")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(
        resolve_module, "pull", lambda alias, on_progress: SimpleNamespace(path=tmp_path / "pulled.gguf")
    )
    resolved = resolve("smollm2")
    assert resolved.alias == "smollm2" and resolved.path == tmp_path / "pulled.gguf"


def test_an_alias_that_is_not_installed_is_not_fetched_offline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resolve_module, "pull", lambda *args: pytest.fail("fetched"))
    with pytest.raises(ModelError, match="medusa models pull smollm2"):
        resolve("smollm2", offline=True)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("org/name", HubId("org/name")),
        ("org/name@v1.0", HubId("org/name", "v1.0")),
        ("org/na.me-x:Q4_K_M", HubId("org/na.me-x", None, "Q4_K_M")),
        ("org/name@abc:q8_0", HubId("org/name", "abc", "q8_0")),
        ("name", None),
        ("a/b/c", None),
        ("org/name@", None),
    ],
)
def test_hub_ids(name: str, expected: HubId | None) -> None:
    assert parse_hub_id(name) == expected
    assert expected is None or str(expected) == name


def test_every_step_is_named_for_a_name_that_leads_nowhere() -> None:
    with pytest.raises(ModelError) as caught:
        resolve("smolm2")
    text = str(caught.value)
    assert "alias: not one of smollm2" in text and "path: smolm2 does not exist" in text
    assert "hub id: not of the form org/name[@revision][:quant]" in text and "try: -m smollm2" in text


def test_a_file_that_is_not_there_is_all_that_is_said(tmp_path: Path) -> None:
    with pytest.raises(ModelError) as caught:
        resolve(str(tmp_path / "x.gguf"))
    missing = tmp_path / "x.gguf"
    assert caught.value.message == f"no model {str(missing)!r} was found: there is no file {missing}"
    assert "-m with a .gguf file or a Hugging Face folder" in str(caught.value.hint)


def test_a_misspelt_file_suggests_its_neighbour(tmp_path: Path) -> None:
    (tmp_path / "model.gguf").touch()
    with pytest.raises(ModelError) as caught:
        resolve(str(tmp_path / "modle.gguf"))
    assert caught.value.hint == f"-m {tmp_path / 'model.gguf'}"


@pytest.mark.parametrize("how", ["argument", "variable"])
def test_offline_says_so_and_asks_nobody(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    hub_answers(monkeypatch, lambda: pytest.fail("asked the hub"))
    if how == "variable":
        monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(ModelError, match="hub cache: not there, or not whole\n  hub: not asked, offline"):
        resolve("org/name", offline=how == "argument")


def test_a_cached_folder_is_used_without_the_network(tmp_path: Path) -> None:
    folder = write_hf(cached_snapshot(tmp_path, "org/name"), "llama")
    resolved = resolve("org/name")
    assert (resolved.path, resolved.kind, resolved.revision) == (folder, "hf", COMMIT)


def test_a_half_downloaded_folder_does_not_count(tmp_path: Path) -> None:
    folder = write_hf(cached_snapshot(tmp_path, "org/name"), "llama")
    (folder / "model.safetensors").rename(folder / "other.safetensors")
    with pytest.raises(ModelError, match="not there, or not whole"):
        resolve("org/name", offline=True)


def test_a_quant_picks_its_file_by_whole_words(tmp_path: Path) -> None:
    folder = cached_snapshot(tmp_path, "org/name-GGUF")
    for quant in ("Q4_K", "Q4_K_M", "Q8_0"):
        write_gguf(folder / f"name-{quant}.gguf", "llama")
    resolved = resolve("org/name-GGUF:q4_k")
    assert resolved.path == folder / "name-Q4_K.gguf" and resolved.kind == "gguf"
    with pytest.raises(ModelError, match="not there"):
        resolve("org/name-GGUF", offline=True)


def test_the_files_of_a_repository_are_listed_where_the_quant_fits_none(monkeypatch: pytest.MonkeyPatch) -> None:
    hub_answers(monkeypatch, listing("README.md", "m-Q8_0.gguf", "m-Q4_0.gguf"))
    with pytest.raises(ModelError, match=r"no GGUF file of org/name match Q5_0; there are: m-Q8_0\.gguf, m-Q4_0\.gguf"):
        resolve("org/name:Q5_0")
    with pytest.raises(ModelError, match="2 GGUF files of org/name match no quant given"):
        resolve("org/name")


def test_a_split_gguf_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    hub_answers(monkeypatch, listing("m-Q8_0-00001-of-00002.gguf", "m-Q8_0-00002-of-00002.gguf"))
    with pytest.raises(ModelError, match="split into 2 GGUF files"):
        resolve("org/name:Q8_0")


def test_a_download_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = cached_snapshot(tmp_path, "org/other")
    hub_answers(monkeypatch, listing("config.json", "model.safetensors"))
    real = huggingface_hub.snapshot_download

    def download(repo: str, **options: Any) -> str:
        if options.get("local_files_only"):
            return real(repo, **options)
        assert options["revision"] == "v2" and "*.safetensors" in options["allow_patterns"]
        return str(folder)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    resolved = resolve("org/name@v2")
    assert (resolved.path, resolved.kind, resolved.revision) == (folder, "hf", COMMIT)


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (errors.GatedRepoError, "is gated: its licence has to be accepted at https://huggingface.co/org/name"),
        (errors.RepositoryNotFoundError, "the hub has no model org/name, or it is private"),
        (errors.RevisionNotFoundError, "org/name has no revision 'v9'"),
        (errors.HfHubHTTPError, "the hub refused org/name@v9"),
    ],
)
def test_the_hubs_refusals_are_told_apart(
    kind: type[errors.HfHubHTTPError], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub_answers(monkeypatch, http_error(kind))
    with pytest.raises(ModelError, match=message):
        resolve("org/name@v9")


def test_no_network_is_told_apart_too(monkeypatch: pytest.MonkeyPatch) -> None:
    def unreachable() -> Any:
        raise ConnectionError("Name or service not known")

    hub_answers(monkeypatch, unreachable)
    with pytest.raises(ModelError, match="cannot reach the hub for org/name: Name or service not known"):
        resolve("org/name")


def test_nothing_heavy_is_imported_for_a_local_file() -> None:
    import subprocess
    import sys

    code = (
        "import sys; import medusakit.models.resolve as r; r.parse_hub_id('a/b');"
        "print([m for m in ('huggingface_hub', 'torch', 'transformers', 'gguf') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
