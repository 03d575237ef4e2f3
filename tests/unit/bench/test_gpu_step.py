"""benchmarks/gpu_step.py on the CPU with a tiny shape: it runs to its end and counts right. Its times mean nothing."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest
import torch

FILE = Path(__file__).parents[3] / "benchmarks" / "gpu_step.py"
TINY = ["--device", "cpu", "--dtype", "f32", "--layers", "1", "--hidden", "32", "--ffn", "48", "--vocab", "64"]
SHORT = ["--context", "20", "--repeats", "1", "--exact-layers", "2", "--exact-tokens", "16"]


@pytest.fixture(scope="module")
def script() -> Any:
    spec = importlib.util.spec_from_file_location("gpu_step", FILE)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_it_runs_and_answers_are_exact(script: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    threads = torch.get_num_threads()
    document = script.main([*TINY, *SHORT, "--json", str(tmp_path / "gpu.json")])
    torch.set_num_threads(threads)
    assert json.loads((tmp_path / "gpu.json").read_text()) == document
    assert set(document["step_ms"]) == {str(nodes) for nodes in script.SIZES}
    weights = 64 * 32 + 4 * 32 * 32 + 3 * 32 * 48 + 3 * 32  # LM head, attention, gated layer, norms
    assert document["bytes_read"] == 4 * (weights + 2 * 256 * 32)  # and the 256 cells of the bucket
    assert document["limit_ms"] == pytest.approx(1e3 * document["bytes_read"] / document["bandwidth_bytes_per_s"])
    ratio = document["step_ms"]["1"]["wall_ms"] / document["limit_ms"]
    assert document["t1_over_limit"] == pytest.approx(ratio) == document["bars"]["t1_over_limit"]["found"]
    exactness = document["exactness"]
    assert exactness["exact"] and exactness["2x2x1"]["tau"] > 1.5 and exactness["tokens"] == 16
    assert 0 <= document["decoding"]["host_share"] < 1
    said = capsys.readouterr().out
    assert "t64_over_t1" in said and "attention cudnn: does not run here" in said


def test_without_a_cuda_device_it_says_so(
    script: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(SystemExit):
        script.main([])
    assert "--device cpu" in capsys.readouterr().err
