"""`medusa models` on an empty cache, without the network."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path

import pytest

from cli_fakes import Invoke
from medusakit.models import store
from medusakit.runtimes.onnx.cache import BUILDER_VERSION


@pytest.fixture(autouse=True)
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    folder = tmp_path / "cache"
    monkeypatch.setenv("MEDUSA_HOME", str(folder))
    return folder


def test_list_names_the_command_that_fetches(invoke: Invoke) -> None:
    assert "medusa models pull smollm2" in invoke("models", "list").out
    listed = json.loads(invoke("models", "list", "--json", "-").out)
    assert {entry["alias"]: entry["installed"] for entry in listed}["smollm2"] is False


def test_show_of_a_model_that_is_not_here(invoke: Invoke) -> None:
    shown = json.loads(invoke("models", "show", "smollm2", "--json", "-").out)
    assert shown["installed"] is False
    assert len(shown["sha256"]) == 64


def test_show_writes_lists_and_truth_as_words(invoke: Invoke, monkeypatch: pytest.MonkeyPatch) -> None:
    about = {"installed": True, "heads": ["hydra: /a", "medusa: /b"]}
    monkeypatch.setattr("medusakit.cli.models._describe", lambda app, name: about)
    out = invoke("models", "show", "smollm2").out
    assert "hydra: /a" in out and "medusa: /b" in out and "yes" in out
    assert "[" not in out and "True" not in out


def test_path(invoke: Invoke, cache: Path) -> None:
    assert invoke("models", "path").out.strip() == str(cache)
    outcome = invoke("models", "path", "smollm2")
    assert outcome.code == 3
    assert "try: medusa models pull smollm2" in outcome.err


def test_rm_of_nothing(invoke: Invoke) -> None:
    outcome = invoke("models", "rm", "smollm2")
    assert (outcome.code, outcome.err) == (0, "smollm2 was not here\n")


def graph(cache: Path, fingerprint: str, version: int, num_bytes: int) -> Path:
    folder = cache / "graphs" / f"{fingerprint[:24]}-f32-v{version}"
    folder.mkdir(parents=True)
    (folder / "weights.bin").write_bytes(b"x" * num_bytes)
    return folder


def test_rm_takes_the_graphs_of_the_model_with_it(invoke: Invoke, monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
    entry = store.ALIASES["smollm2"]
    monkeypatch.setitem(store.ALIASES, "smollm2", replace(entry, num_bytes=1_000_000))
    file = store.show("smollm2").path
    file.parent.mkdir(parents=True)
    file.write_bytes(b"m" * 1_000_000)
    own = graph(cache, hashlib.sha256(file.read_bytes()).hexdigest(), BUILDER_VERSION, 2_000_000)
    other = graph(cache, "b" * 64, BUILDER_VERSION, 5)
    assert invoke("models", "rm", "smollm2").err == "removed smollm2: 3 MB\n"
    assert not file.exists() and not own.exists() and other.exists()


def test_clean_deletes_what_other_versions_left_and_all_the_rest_too(invoke: Invoke, cache: Path) -> None:
    old = graph(cache, "a" * 64, BUILDER_VERSION - 1, 3_000_000)
    current = graph(cache, "a" * 64, BUILDER_VERSION, 4_000_000)
    assert invoke("models", "clean").err == "freed 3 MB; --all frees 4 MB more\n"
    assert not old.exists() and current.exists()
    assert invoke("models", "clean", "--all").err == "freed 4 MB\n"
    assert not current.exists()


def test_pull_prints_the_path_and_reports_progress(invoke: Invoke, monkeypatch: pytest.MonkeyPatch) -> None:
    stages = []

    def fake_pull(alias: str, on_progress: store.OnProgress) -> store.StoredModel:
        for stage in ("download", "unpack"):
            stages.append(stage)
            on_progress(store.Progress(alias, stage, 1, 1, 5, 10))
        return store.show(alias)

    monkeypatch.setattr(store, "pull", fake_pull)
    outcome = invoke("models", "pull")
    assert outcome.out.strip() == str(store.show("smollm2").path)
    assert stages == ["download", "unpack"]


@pytest.mark.parametrize("command", ["pull", "show", "rm", "path"])
def test_unknown_names_exit_with_3(invoke: Invoke, command: str) -> None:
    outcome = invoke("models", command, "no-such-model")
    assert outcome.code == 3
    assert "no-such-model" in outcome.err
