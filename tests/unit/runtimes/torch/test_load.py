"""What is refused before a model is read."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from medusakit.errors import UsageError
from medusakit.models.resolve import resolve
from medusakit.runtimes.torch.device.runtime import DeviceRuntime
from medusakit.runtimes.torch.load import load_torch, pretrained, torch_parts
from tiny import write_hf


def test_a_device_that_is_not_there_is_refused_before_anything_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    resolved = resolve(str(write_hf(tmp_path / "m", "llama", seed=1)))
    with pytest.raises(UsageError, match="torch .* sees none") as told:
        load_torch(resolved, device_map="cuda:1")
    assert "doctor" in told.value.hint


def test_the_cpu_is_not_asked_for_fixed_shapes_unless_told(tmp_path: Path) -> None:
    model = pretrained(resolve(str(write_hf(tmp_path / "m", "llama", seed=1))), threads=1)
    assert not isinstance(torch_parts(model).runtime, DeviceRuntime)
    runtime = torch_parts(model, prepared=True).runtime
    assert isinstance(runtime, DeviceRuntime) and runtime.capabilities.device == "cpu"
