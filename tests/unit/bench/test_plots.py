"""Pictures hold the figures of their document, as text that can be read back."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from medusakit.bench.plots import write_plots
from medusakit.errors import MissingExtraError

SVG = "{http://www.w3.org/2000/svg}"
COMPARED: dict[str, Any] = {
    "weights": "int8",
    "modes": {"plain": {"accepted_by_depth": []}, "medusa": {"accepted_by_depth": [0.71, 0.42, 0.08]}},
    "speedup": {
        "medusa/plain": {
            "ratio": 1.42, "ci95": [1.36, 1.49], "by_category": {"coding": 1.63, "writing": 0.97},
            "by_category_ci95": {"coding": [1.5, 1.7], "writing": [0.9, 1.1]},
        },
        "plain/hf": {"ratio": 3.1, "ci95": [3.0, 3.2], "by_category": {"coding": 3.2, "writing": 3.0}},
    },
}  # fmt: skip
HARDWARE = {
    "step_ms": {"f32": {"1": 22.0, "8": 33.0}, "int4": {"1": 10.0, "8": 29.0}},
    "limit_ms": {"f32": {"1": 20.0, "8": 20.0}, "int4": {"1": 2.5, "8": 6.0}},
}


def point(name: str, kind: str, verify_ms: float, tau: float, rho_eff: float) -> dict[str, Any]:
    return {"name": name, "kind": kind, "verify_ms": verify_ms, "tau": tau, "rho_eff": rho_eff}


POINTS = [
    point("plain", "plain", 20.0, 1.0, 0.0), point("2x3", "dense", 40.0, 1.8, 0.6),
    point("calibrated-4", "calibrated", 25.0, 1.7, 0.5),
]  # fmt: skip
GRID = {"weights": "f32", "points": POINTS, "pareto": POINTS, "pareto_rho_eff": POINTS[:2]}
HYDRA: dict[str, Any] = {"tau": 2.05, "rho": 0.4, "speedup": 1.51, "ci95": [1.4, 1.6]}
DRAFTERS: dict[str, Any] = {
    "drafters": {"hydra": HYDRA, "suffix": HYDRA | {"tau": 1.31, "speedup": 1.12}},
    "degraded": [{"noise": 0.0, **HYDRA}, {"noise": 0.5, **HYDRA, "rho": 0.1, "tau": 1.2}],
}


def texts(file: Path) -> list[str]:
    root = ElementTree.parse(file).getroot()
    assert root.tag == f"{SVG}svg"
    return ["".join(node.itertext()).strip() for node in root.iter(f"{SVG}text")]


def test_speedups_and_acceptance(tmp_path: Path) -> None:
    files = write_plots(COMPARED, tmp_path / "made" / "here")
    names = ["speedup-medusa-plain.svg", "speedup-plain-hf.svg", "acceptance-medusa.svg"]
    assert [file.name for file in files] == names and all(file.parent.name == "here" for file in files)
    speedup, _, acceptance = map(texts, files)
    assert {"coding", "writing", "all", "1.63", "0.97", "1.42"} <= set(speedup)
    assert speedup.index("writing") < speedup.index("coding")  # drawn from the bottom: the fastest on top
    assert "Speed of medusa over plain, int8 weights" in speedup
    assert {"71 %", "42 %", "8 %"} <= set(acceptance)


def test_steps_beside_their_limit(tmp_path: Path) -> None:
    (file,) = write_plots(HARDWARE, tmp_path)
    assert file.name == "steps.svg"
    assert {"f32", "int4", "limit", "measured", "T(n), ms"} <= set(texts(file))


def test_trees_against_the_time_of_their_pass(tmp_path: Path) -> None:
    (file,) = write_plots(GRID, tmp_path)
    assert file.name == "pareto.svg"
    found = texts(file)
    assert found.count("2x3") == 2  # once a panel
    assert found.count("4") == 1  # by its nodes, and only where it is on the front
    assert {"Pareto front", "dense D x B", "calibrated, by nodes", "20", "rho_eff, f32 weights"} <= set(found)


def test_drafters_and_worse_heads(tmp_path: Path) -> None:
    files = write_plots(DRAFTERS, tmp_path)
    assert [file.name for file in files] == ["drafters.svg", "degraded.svg"]
    table, curve = map(texts, files)
    assert table.index("suffix") < table.index("hydra") and "1.51, tau 2.05" in table
    assert {"noise 0, tau 2.05", "noise 0.5, tau 1.20"} <= set(curve)


def test_the_same_document_gives_the_same_file(tmp_path: Path) -> None:
    once, again = (write_plots(HARDWARE, tmp_path / name)[0].read_bytes() for name in ("a", "b"))
    assert once == again


def test_a_document_without_figures_leaves_nothing(tmp_path: Path) -> None:
    assert write_plots({"formats": {}}, tmp_path / "none") == []
    assert not (tmp_path / "none").exists()


def test_missing_matplotlib_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingExtraError) as caught:
        write_plots(HARDWARE, tmp_path)
    assert "medusakit[bench]" in str(caught.value.hint)
