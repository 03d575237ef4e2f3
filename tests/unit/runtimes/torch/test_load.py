"""What is refused before a model is read."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from medusakit.errors import ModelError, UsageError
from medusakit.models.resolve import resolve
from medusakit.runtimes.torch.device.runtime import DeviceRuntime
from medusakit.runtimes.torch.load import _without_bars, load_torch, pretrained, torch_parts
from tiny import write_hf


def test_a_device_that_is_not_there_is_refused_before_anything_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    resolved = resolve(str(write_hf(tmp_path / "m", "llama", seed=1)))
    with pytest.raises(UsageError, match="torch .* sees none") as told:
        load_torch(resolved, device_map="cuda:1")
    assert "doctor" in told.value.hint


@pytest.mark.parametrize(
    ("wrong", "match"),
    [
        ({"device_map": "gpu0"}, "'gpu0' is none that transformers knows"),
        ({"weights": "int8"}, "'int8' are not a format"),
    ],
)
def test_what_is_no_device_or_format_is_refused_with_what_is(tmp_path: Path, wrong: dict[str, str], match: str) -> None:
    resolved = resolve(str(write_hf(tmp_path / "m", "llama", seed=1)))
    with pytest.raises(UsageError, match=match) as told:
        load_torch(resolved, **wrong)  # type: ignore[arg-type]
    assert "auto" in told.value.hint


def test_a_named_device_is_used(tmp_path: Path) -> None:
    resolved = resolve(str(write_hf(tmp_path / "m", "llama", seed=1)))
    assert load_torch(resolved, device_map="cpu", weights="bf16").runtime.capabilities.weights == "bf16"


def test_what_transformers_cannot_load_is_told_with_its_reason(tmp_path: Path) -> None:
    resolved = resolve(str(write_hf(tmp_path / "m", "llama", seed=1)))
    (resolved.path / "config.json").write_text('{"model_type": "llama", "hidden_size": "wide"}')
    with pytest.raises(ModelError, match="transformers cannot load"):
        load_torch(resolved)


def test_the_cpu_is_not_asked_for_fixed_shapes_unless_told(tmp_path: Path) -> None:
    model = pretrained(resolve(str(write_hf(tmp_path / "m", "llama", seed=1))), threads=1)
    assert not isinstance(torch_parts(model).runtime, DeviceRuntime)
    runtime = torch_parts(model, prepared=True).runtime
    assert isinstance(runtime, DeviceRuntime) and runtime.capabilities.device == "cpu"


def test_no_bars_of_transformers_are_drawn_and_all_are_given_back(capsys: pytest.CaptureFixture[str]) -> None:
    from transformers import modeling_gguf_pytorch_utils as reader
    from transformers.utils import logging

    before = reader.tqdm, logging.is_progress_bar_enabled()
    with _without_bars():
        list(reader.tqdm(range(3), desc="Converting"))
        list(logging.tqdm(range(3)))
    assert capsys.readouterr().err == ""
    assert before == (reader.tqdm, logging.is_progress_bar_enabled())
