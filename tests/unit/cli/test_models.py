"""`medusa models` on an empty cache, without the network."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cli_fakes import Invoke
from medusakit.models import store


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


def test_path(invoke: Invoke, cache: Path) -> None:
    assert invoke("models", "path").out.strip() == str(cache)
    outcome = invoke("models", "path", "smollm2")
    assert outcome.code == 3
    assert "try: medusa models pull smollm2" in outcome.err


def test_rm_of_nothing(invoke: Invoke) -> None:
    outcome = invoke("models", "rm", "smollm2")
    assert (outcome.code, outcome.err) == (0, "smollm2 was not here\n")


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
