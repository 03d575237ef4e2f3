"""Distilling on the CPU runtime: batched answers and their states equal what one row alone gives."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from medusakit.models.resolve import open_weights, resolve
from medusakit.models.spec import WeightSource
from medusakit.runtimes.onnx.runtime import load_onnx
from medusakit.text.tokenizer import Tokenizer, load_tokenizer
from medusakit.train.dataset import Dataset
from medusakit.train.distill import DistillConfig, distill
from medusakit.train.provenance import backbone_of
from medusakit.train.templates import Conversation
from tiny import write_gguf
from train_fakes import ChatBytes

Opened = tuple[WeightSource, Tokenizer]


def tiny(folder: Path) -> Opened:
    source = open_weights(resolve(str(write_gguf(folder / "m.gguf", "llama", seed=4))))
    return source, ChatBytes()  # type: ignore[return-value]


def smollm2(folder: Path) -> Opened:
    resolved = resolve("smollm2")
    return open_weights(resolved), load_tokenizer(resolved)


@pytest.mark.parametrize(
    ("open_model", "flat"), [(tiny, 0.0), pytest.param(smollm2, 1e-3, marks=pytest.mark.model)], ids=["tiny", "smollm2"]
)
def test_batched_answers_equal_single_rows(tmp_path: Path, open_model: Callable[[Path], Opened], flat: float) -> None:
    """flat: two best scores closer than this may change places between a batch and a row alone (fp32 rounding)."""
    source, tokenizer = open_model(tmp_path)
    seeds = [Conversation((f"Say {n}.", "Why?")[: 1 + n % 2], "own", "Apache-2.0") for n in range(5)]
    config = DistillConfig(rows=3, max_new_tokens=12, max_prompt_tokens=128, sampled_share=0.0)
    runtime = load_onnx(source, weights="f32", max_rows=3, max_context=200, cache_dir=tmp_path / "graphs")
    distill(runtime, tokenizer, seeds, tmp_path / "set", config, backbone=backbone_of(source, tokenizer))
    data = Dataset([tmp_path / "set"])
    assert len(data) == 7 and runtime.rows == ()
    head = source.tensor("embed" if source.spec.tied_embeddings else "lm_head").f32()
    for sample in data:
        row = runtime.add_row()
        states = runtime.hidden_states(row, sample.ids.tolist())[sample.prompt_len - 1 : -1]
        runtime.drop_row(row)
        np.testing.assert_allclose(sample.hidden, states, atol=2e-3 * float(np.abs(states).max()))
        scores = states @ head.T
        chosen = scores[np.arange(len(scores)), sample.gen]
        assert (scores.max(axis=1) - chosen <= flat + 1e-4).all()
