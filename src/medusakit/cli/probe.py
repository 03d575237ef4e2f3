"""What this machine has, read from the system: cores, memory, processor features, space on disk. No judgement."""

from __future__ import annotations

import os
import platform
import shutil
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from medusakit.machine import cpu_name, installed

PACKAGES = (
    "medusakit",
    "onnxruntime",
    "numpy",
    "tokenizers",
    "jinja2",
    "onnx",
    "gguf",
    "safetensors",
    "pydantic",
    "torch",
    "transformers",
)
FEATURES = (
    "avx2",
    "fma",
    "f16c",
    "avx512f",
    "avx512_vnni",
    "avx_vnni",
    "avx512_bf16",
    "amx_int8",
    "asimd",
    "asimddp",
    "i8mm",
)


@dataclass(frozen=True, slots=True)
class Machine:
    """cores: usable by this process. memory_bytes: available now, container limits included; 0 where unknown."""

    cpu: str
    features: tuple[str, ...]
    cores: int
    memory_bytes: int


def read_machine() -> Machine:
    return Machine(cpu_name(), _features(), usable_cores(), available_memory())


def versions() -> dict[str, str]:
    """Versions of Python and of the packages that are installed."""
    return {"python": platform.python_version()} | installed(PACKAGES)


def usable_cores() -> int:
    """Cores this process may run on, a container's CPU quota included."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota, _, period = _read("/sys/fs/cgroup/cpu.max").partition(" ")
    if quota.isdigit() and period.strip().isdigit():
        allowed = min(allowed, max(1, int(quota) // int(period)))
    return allowed


def available_memory() -> int:
    """Bytes that can be taken without swapping."""
    fields = dict(line.split(":", 1) for line in _read("/proc/meminfo").splitlines() if ":" in line)
    available = int(fields["MemAvailable"].split()[0]) * 1024 if "MemAvailable" in fields else 0
    limit, used = _read("/sys/fs/cgroup/memory.max").strip(), _read("/sys/fs/cgroup/memory.current").strip()
    if limit.isdigit() and used.isdigit():
        available = min(available, max(0, int(limit) - int(used)))
    return available


def free_disk(path: Path) -> int:
    """Free bytes on the file system of `path`, or of its nearest existing parent."""
    while not path.exists():
        path = path.parent
    return shutil.disk_usage(path).free


def folder_bytes(path: Path) -> int:
    """Of all files below `path`, 0 if it is not there; what vanishes meanwhile does not count."""
    total = 0
    for parent, _, names in os.walk(path):
        for name in names:
            with suppress(OSError):
                total += os.lstat(os.path.join(parent, name)).st_size
    return total


def _features() -> tuple[str, ...]:
    for line in _read("/proc/cpuinfo").splitlines():
        if line.startswith(("flags", "Features")):
            present = set(line.partition(":")[2].split())
            return tuple(name for name in FEATURES if name in present)
    return ()


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except OSError:
        return ""
