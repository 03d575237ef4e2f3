"""The machine and what is installed on it."""

from __future__ import annotations

import os
import platform

import medusakit
from medusakit.machine import cpu_name, installed, machine_name


def test_only_installed_packages_have_versions() -> None:
    assert installed(("medusakit", "no-such-package")) == {"medusakit": medusakit.__version__}


def test_a_system_that_names_no_processor(monkeypatch) -> None:
    def refuse(*_, **__):
        raise OSError

    monkeypatch.setattr("builtins.open", refuse)
    monkeypatch.setattr(platform, "processor", lambda: "")
    monkeypatch.setattr(platform, "machine", lambda: "riscv64")
    monkeypatch.setattr(os, "cpu_count", lambda: 4)
    assert cpu_name() == "riscv64"
    assert machine_name() == "riscv64 x4"
