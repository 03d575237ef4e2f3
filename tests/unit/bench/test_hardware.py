"""The hardware probe: the limit by hand, and a document whose parts fit together."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from medusakit.bench import hardware
from medusakit.bench.hardware import limit_s, matrix_parameters, run_hardware
from medusakit.runtimes.base import Runtime
from medusakit.runtimes.reference import random_reference

SPEC = replace(
    random_reference(0, 23).spec,
    vocab_size=49_152, hidden_size=576, num_layers=30, num_heads=9, num_kv_heads=3, head_dim=64, ffn_size=1536,
)  # fmt: skip
PARAMETERS = 134_479_872  # 30 x 576 x (2 x 576 + 2 x 192 + 3 x 1536) + 576 x 49,152


def test_parameters_of_the_embedded_model() -> None:
    assert matrix_parameters(SPEC) == PARAMETERS


def test_few_nodes_are_bound_by_memory() -> None:
    assert limit_s(SPEC, "f32", 1, 27.0, 145.0) == pytest.approx(4 * PARAMETERS / 27e9)  # 19.9 ms
    assert limit_s(SPEC, "f32", 10, 27.0, 145.0) == limit_s(SPEC, "f32", 1, 27.0, 145.0)
    assert limit_s(SPEC, "int8", 1, 27.0, 400.0) == pytest.approx(PARAMETERS / 27e9)
    assert limit_s(SPEC, "int4", 1, 27.0, 400.0) == pytest.approx(0.5 * PARAMETERS / 27e9)


def test_many_nodes_are_bound_by_arithmetic() -> None:
    assert limit_s(SPEC, "f32", 16, 27.0, 145.0) == pytest.approx(16 * 2 * PARAMETERS / 145e9)  # 29.7 ms
    assert limit_s(SPEC, "f32", 32, 27.0, 145.0) == pytest.approx(2 * limit_s(SPEC, "f32", 16, 27.0, 145.0))


def test_the_document(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hardware, "bandwidth", lambda threads: (20.0, 15.0))
    monkeypatch.setattr(hardware, "gemm_rate", lambda arithmetic, threads: {"f32": 100.0, "int8": 400.0}[arithmetic])
    monkeypatch.setattr(hardware, "MEASURE_S", 0.0)
    closed: list[str] = []

    def load(weights: str) -> Runtime:
        runtime = random_reference(0, 23, context_length=64)
        monkeypatch.setattr(runtime, "close", lambda: closed.append(weights))
        return runtime

    said: list[str] = []
    document = run_hardware(load, formats=("f32", "int4"), context=16, on_progress=said.append)
    assert (document["read_gb_s"], document["copy_gb_s"], document["gemm_gflop_s"]) == (20.0, 15.0, 100.0)
    spec = random_reference(0, 23).spec
    for weights, rate in (("f32", 100.0), ("int4", 400.0)):
        steps, limits = document["step_ms"][weights], document["limit_ms"][weights]
        assert list(steps) == list(limits) == [str(size) for size in hardware.SIZES]
        assert all(taken > 0 for taken in steps.values())
        assert limits["8"] == pytest.approx(1e3 * limit_s(spec, weights, 8, 20.0, rate))
        assert document["ratio"][weights]["8"] == pytest.approx(steps["8"] / limits["8"])
    assert closed == ["f32", "int4"] and len(said) == 4
    json.dumps(document, allow_nan=False)


def test_the_probes_measure_something(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small sizes: only that the graphs run, and that rates are rates."""
    monkeypatch.setattr(hardware, "BUFFER_BYTES", 4 << 20)
    read, copy = hardware.bandwidth(1, repeats=1)
    assert 0.01 < read < 10_000 and 0.01 < copy < 10_000
    for arithmetic in ("f32", "int8"):
        assert 0.01 < hardware.gemm_rate(arithmetic, 1, size=128, repeats=1) < 100_000
