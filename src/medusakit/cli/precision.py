"""The doctor's checks of what computes and how exactly: device, BLAS, switches that lower float32."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from medusakit.diagnosis.findings import Finding

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


def check_blas(name: str) -> Finding:
    return Finding("blas", "info", f"NumPy multiplies with {name}")


def check_precision(env: Mapping[str, str]) -> Finding:
    """TF32 and its kin: with them on, float32 results differ between shapes by more than rounding, and so may ties."""
    lowering = [f"{name}={env[name]}" for name, values in LOWERING.items() if env.get(name, "").upper() in values]
    if lowering:
        evidence = f"{', '.join(lowering)}: float32 products are rounded to 10 bits or fewer"
        return Finding("precision", "warning", evidence, f"unset {' '.join(part.split('=')[0] for part in lowering)}")
    return Finding("precision", "info", "no switch lowers the precision of float32 (TF32, bfloat16 products)")
