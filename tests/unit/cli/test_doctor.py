"""`medusa doctor`: judgements on given values, and the command on this machine."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cli_fakes import Invoke
from medusakit.cli import checks
from medusakit.cli.probe import Machine, available_memory, free_disk, usable_cores
from medusakit.runtimes.onnx.cache import BUILDER_VERSION
from medusakit.runtimes.onnx.inventory import BuiltGraph

GOOD = Machine("a processor", ("avx2", "avx512_vnni"), 4, 8 * checks.GIB)


def test_missing_packages_are_an_error() -> None:
    versions = dict.fromkeys(checks.REQUIRED, "1.0")
    assert checks.check_packages(versions).severity == "info"
    del versions["gguf"]
    finding = checks.check_packages(versions)
    assert (finding.severity, finding.evidence) == ("error", "not installed: gguf")
    assert finding.remedy.startswith("pip install")


@pytest.mark.parametrize(
    ("features", "severity", "part"),
    [
        (("avx2", "avx512_vnni"), "info", "avx2 avx512_vnni"),
        (("avx2",), "info", "int8 and int4 gain less"),
        ((), "warning", "no vector features known"),
    ],
)
def test_processor(features: tuple[str, ...], severity: str, part: str) -> None:
    finding = checks.check_processor(Machine("x", features, 2, 0))
    assert finding.severity == severity
    assert part in finding.evidence


@pytest.mark.parametrize(
    ("cores", "threads", "severity", "remedy"),
    [(4, None, "info", ""), (4, 4, "info", ""), (2, 8, "warning", "--threads 2"), (1, None, "warning", "two cores")],
)
def test_cores(cores: int, threads: int | None, severity: str, remedy: str) -> None:
    finding = checks.check_cores(Machine("x", (), cores, 0), threads)
    assert finding.severity == severity
    assert finding.remedy.startswith(remedy) and bool(finding.remedy) == bool(remedy)


def test_thread_variables() -> None:
    assert checks.check_threads({}, 2).severity == "info"
    assert checks.check_threads({"OMP_NUM_THREADS": "2"}, 2).severity == "info"
    assert checks.check_threads({"MKL_NUM_THREADS": "16"}, 2).severity == "warning"


def test_memory() -> None:
    assert checks.check_memory(GOOD, 4 * checks.GIB).severity == "info"
    assert checks.check_memory(GOOD, 9 * checks.GIB).severity == "error"
    assert checks.check_memory(Machine("x", (), 2, 0), 9 * checks.GIB).severity == "info", "unknown is not too little"


def test_cache_is_probed_and_left_clean(tmp_path: Path) -> None:
    findings = list(checks.check_cache(tmp_path / "cache"))
    assert [finding.code for finding in findings] == ["cache", "disk"]
    assert findings[0].severity == "info"
    assert list((tmp_path / "cache").iterdir()) == []


def test_the_size_of_the_cache_is_told(tmp_path: Path) -> None:
    for part, gib in (("models/a", 0.25), ("graphs/x-f32-v1", 0.5), ("other", 0.25)):
        (tmp_path / part).mkdir(parents=True)
        with (tmp_path / part / "file").open("wb") as file:
            file.truncate(int(gib * checks.GIB))  # sparse: takes no room
    message = next(checks.check_cache(tmp_path)).evidence
    assert message.endswith("it holds 1.00 GiB: models 0.25 GiB, graphs 0.50 GiB")


@pytest.mark.parametrize(
    ("versions", "severity", "said", "remedy"),
    [
        ((), "info", "0 MB of built graphs (0)", ""),
        ((BUILDER_VERSION,), "info", "540 MB of built graphs (1), none of another version", ""),
        ((BUILDER_VERSION, 1, 2), "warning", "1,080 MB (2) are another", "medusa models clean"),
    ],
)
def test_graphs_that_nothing_uses(versions: tuple[int, ...], severity: str, said: str, remedy: str) -> None:
    graphs = [BuiltGraph(Path("g"), "a" * 24, "f32", version, 540_000_000) for version in versions]
    finding = checks.check_graphs(graphs)
    assert (finding.severity, finding.remedy) == (severity, remedy)
    assert said in finding.evidence


def test_cache_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (finding,) = checks.check_cache(tmp_path / "file")
    assert finding.severity == "error"
    assert "MEDUSA_HOME" in finding.remedy


def test_low_disk_is_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "free_disk", lambda path: 10_000_000)
    assert list(checks.check_cache(tmp_path))[1].severity == "warning"


def test_probe_reads_plausible_values(tmp_path: Path) -> None:
    assert usable_cores() >= 1
    assert available_memory() >= 0
    assert free_disk(tmp_path / "not" / "there") > 0


def test_command_reports_each_finding(invoke: Invoke, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MEDUSA_HOME", str(tmp_path))
    outcome = invoke("doctor", "-m", "no-such-model", "--json", "-")
    assert outcome.code == 0
    findings = {entry["code"]: entry for entry in json.loads(outcome.out)["findings"]}
    assert findings["packages"]["severity"] == "info"
    assert findings["model"]["severity"] == "warning"
    assert findings["model"]["remedy"]
    assert "no-such-model" in invoke("doctor", "-m", "no-such-model").out


def test_command_fails_where_something_cannot_work(
    invoke: Invoke, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("MEDUSA_HOME", str(tmp_path / "file"))
    outcome = invoke("doctor", "-m", "no-such-model")
    assert outcome.code == 4
    assert "error: cache" in outcome.out
