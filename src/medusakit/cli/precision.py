"""The doctor's checks of what computes and how exactly: device, BLAS, switches that lower float32."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from medusakit.diagnosis.findings import Finding

if TYPE_CHECKING:
    from medusakit.runtimes.torch.device.facts import TorchFacts

# variable -> values that let float32 products be rounded to fewer bits
LOWERING = {
    "NVIDIA_TF32_OVERRIDE": ("1",),
    "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE": ("1",),
    "ONEDNN_DEFAULT_FPMATH_MODE": ("BF16", "TF32", "ANY"),
    "DNNL_DEFAULT_FPMATH_MODE": ("BF16", "TF32", "ANY"),
}


def gpu_devices(root: Path = Path("/dev")) -> list[str]:
    """NVIDIA devices that the system shows to this process."""
    return sorted(device.name for device in root.glob("nvidia[0-9]*"))


def blas_name() -> str:
    """Of NumPy's matrix products."""
    import numpy as np

    config: Any = np.show_config(mode="dicts")
    blas = (config or {}).get("Build Dependencies", {}).get("blas", {})
    return f"{blas.get('name', 'unknown')} {blas.get('version', '')}".strip()


def check_device(providers: Sequence[str], gpus: Sequence[str]) -> Finding:
    """providers: of the installed onnxruntime."""
    evidence = f"the runtime decodes on the CPU; onnxruntime offers {', '.join(providers)}"
    return Finding("device", "info", evidence + (f"; GPUs: {', '.join(gpus)}" if gpus else "; no NVIDIA device"))


def check_torch(facts: TorchFacts, device_map: str | None) -> Finding:
    """What the torch runtime would compute on. facts: from torch itself."""
    if not facts.devices:
        evidence = f"torch {facts.version} sees no CUDA device, so the torch runtime computes on the CPU"
        if "cuda" in (device_map or ""):
            remedy = "a build of torch for CUDA and its driver (https://pytorch.org/get-started), or no --device-map"
            return Finding("torch", "error", f"{evidence}; the device map is {device_map}", remedy)
        return Finding("torch", "info", evidence)
    names = ", ".join(f"{name} ({size / 2**30:.0f} GiB)" for name, size in facts.devices)
    evidence = f"torch {facts.version} on {names}"
    if facts.capture_fault:
        why = f"{evidence} cannot capture CUDA graphs: {facts.capture_fault}"
        return Finding(
            "torch", "warning", why, "a newer driver or torch; without graphs small models wait for the host"
        )
    if facts.tf32:
        why = f"{evidence}; torch.backends.cuda.matmul.allow_tf32 is on, so float32 is rounded to 10 bits"
        return Finding("torch", "warning", why, "leave it off where equal answers matter")
    return Finding("torch", "info", f"{evidence}, CUDA graphs work")


def check_blas(name: str) -> Finding:
    return Finding("blas", "info", f"NumPy multiplies with {name}")


def check_precision(env: Mapping[str, str]) -> Finding:
    """TF32 and its kin: with them on, float32 results differ between shapes by more than rounding, and so may ties."""
    lowering = [f"{name}={env[name]}" for name, values in LOWERING.items() if env.get(name, "").upper() in values]
    if lowering:
        evidence = f"{', '.join(lowering)}: float32 products are rounded to 10 bits or fewer"
        return Finding("precision", "warning", evidence, f"unset {' '.join(part.split('=')[0] for part in lowering)}")
    return Finding("precision", "info", "no switch lowers the precision of float32 (TF32, bfloat16 products)")
