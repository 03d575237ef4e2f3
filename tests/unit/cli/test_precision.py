"""The doctor's report of what computes: devices, BLAS, switches of precision."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from medusakit.cli import precision
from medusakit.runtimes.torch.device.facts import TorchFacts, torch_facts


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


@pytest.mark.parametrize(
    ("facts", "device_map", "severity", "text"),
    [
        (TorchFacts("2.13", (), False), None, "info", "sees no CUDA device"),
        (TorchFacts("2.13", (), False), "cuda:0", "error", "the device map is cuda:0"),
        (TorchFacts("2.13", (("A100", 80 << 30),), False), "cuda", "info", "A100 (80 GiB), CUDA graphs work"),
        (TorchFacts("2.13", (("A100", 80 << 30),), True), "auto", "warning", "allow_tf32"),
        (TorchFacts("2.13", (("A100", 80 << 30),), False, "too old"), "auto", "warning", "graphs: too old"),
    ],
)
def test_what_torch_would_compute_on(facts: TorchFacts, device_map: str | None, severity: str, text: str) -> None:
    finding = precision.check_torch(facts, device_map)
    assert finding.severity == severity and text in finding.evidence
    assert bool(finding.remedy) == (severity != "info")


def test_torch_tells_what_it_sees() -> None:
    facts = torch_facts()
    assert facts.version and bool(facts.devices) == torch.cuda.is_available()


def test_blas_has_a_name() -> None:
    assert precision.blas_name()
