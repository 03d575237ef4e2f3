"""`medusa config`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cli_fakes import Invoke
from medusakit.config import KEYS


def test_show_names_every_setting_and_its_origin(
    invoke: Invoke, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "my.toml"
    file.write_text("top_k = 4\n")
    monkeypatch.setenv("MEDUSA_TOP_P", "0.5")
    outcome = invoke("config", "show", "--config", str(file), "--seed", "3", "--json", "-")
    shown = json.loads(outcome.out)
    assert set(shown) == set(KEYS)
    origin = {name: (entry["value"], entry["source"]) for name, entry in shown.items()}
    assert origin["seed"] == (3, "flag")
    assert origin["top_p"] == (0.5, "env")
    assert origin["top_k"] == (4, "file")
    assert origin["min_p"] == (0.0, "default")


def test_show_reads_what_the_artifact_recommends(invoke: Invoke, tmp_path: Path) -> None:
    manifest = tmp_path / "medusa.json"
    manifest.write_text(json.dumps({"provenance": {"recipe": {"defaults": {"budget": 12}}}}))
    shown = json.loads(invoke("config", "show", "--heads", str(tmp_path), "--json", "-").out)
    assert (shown["budget"]["value"], shown["budget"]["source"]) == (12, "artifact")
    assert shown["budget"]["where"] == str(manifest)


def test_show_prints_a_table_and_warns_of_stray_variables(invoke: Invoke, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEDUSA_SERVICE_HOST", "10.0.0.1")
    outcome = invoke("config", "show")
    assert "MEDUSA_TEMPERATURE" in outcome.out
    assert "MEDUSA_SERVICE_HOST" in outcome.err


def test_init_writes_once_and_path_names_it(invoke: Invoke) -> None:
    path = invoke("config", "path").out.strip()
    assert invoke("config", "init").code == 0
    assert Path(path).read_text().startswith("# Settings of medusakit")
    refused = invoke("config", "init")
    assert refused.code == 2 and "--force" in refused.err
    assert invoke("config", "init", "--force").code == 0


def test_the_file_of_init_is_read(invoke: Invoke) -> None:
    path = Path(invoke("config", "path").out.strip())
    invoke("config", "init")
    path.write_text("seed = 11\n")
    assert json.loads(invoke("config", "show", "--json", "-").out)["seed"] == {
        "value": 11,
        "source": "file",
        "where": str(path),
        "variable": "MEDUSA_SEED",
        "flag": "--seed",
    }
