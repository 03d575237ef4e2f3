"""The machine and what is installed on it, as far as documents and caches name them."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterable
from importlib import metadata


def cpu_name() -> str:
    """The processor's own name where the system tells it."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as lines:
            for line in lines:
                if line.startswith("model name"):
                    return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def machine_name() -> str:
    """Processor and number of cores: what figures that were measured here depend on."""
    return f"{cpu_name()} x{os.cpu_count()}"


def installed(packages: Iterable[str]) -> dict[str, str]:
    """Versions of those packages that are installed."""
    found = {}
    for name in packages:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found
