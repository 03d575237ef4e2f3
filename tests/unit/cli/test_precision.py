"""The doctor's report of what computes: devices, BLAS, switches of precision."""

from __future__ import annotations

from pathlib import Path

import pytest

from medusakit.cli import precision


@pytest.mark.parametrize(
    ("env", "severity"),
    [
        ({}, "info"),
        ({"NVIDIA_TF32_OVERRIDE": "0"}, "info"),
        ({"NVIDIA_TF32_OVERRIDE": "1"}, "warning"),
        ({"ONEDNN_DEFAULT_FPMATH_MODE": "bf16"}, "warning"),
    ],
)
def test_switches_that_lower_the_precision(env: dict[str, str], severity: str) -> None:
    finding = precision.check_precision(env)
    assert finding.severity == severity
    assert (finding.remedy == f"unset {next(iter(env))}") if severity == "warning" else not finding.remedy


def test_devices(tmp_path: Path) -> None:
    (tmp_path / "nvidia0").touch()
    (tmp_path / "nvidiactl").touch()
    assert precision.gpu_devices(tmp_path) == ["nvidia0"]
    assert "GPUs: nvidia0" in precision.check_device(["CPUExecutionProvider"], ["nvidia0"]).evidence
    assert "no NVIDIA device" in precision.check_device(["CPUExecutionProvider"], []).evidence


def test_blas_has_a_name() -> None:
    assert precision.blas_name()
