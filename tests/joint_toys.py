"""A random tiny model with a tokenizer, as a folder, and answers of it, for tests of joint training."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from medusakit.artifact.schema import Backbone
from medusakit.models.resolve import ResolvedModel
from medusakit.train.dataset import Dataset, ShardWriter
from medusakit.train.heads_config import HeadsConfig
from medusakit.train.joint.config import JointConfig
from medusakit.train.joint.net import hidden_states
from medusakit.train.manifest import DatasetManifest
from medusakit.train.shards import Sample
from tiny import write_hf
from vocabularies import byte_backend

VOCAB = 264  # 261 tokens and a few rows of padding
HEADS = HeadsConfig(
    family="medusa", depth=2, draft_vocab=0, epochs=1, batch_rows=64, dropout=0.0, averaging=0.0, warmup_steps=2,
    bf16=False, survival=0.0, held_out=0.4,
)  # fmt: skip
JOINT = JointConfig(
    rank=4, alpha=8, batch_tokens=128, warmup_steps=2, bf16=False, lambda0=0.1, ramp="none", learning_rate=2e-3
)
TEMPLATE = (
    "{% for m in messages %}{{ m['role'] + ': ' + m['content'] + '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ 'assistant:' }}{% endif %}"
)


def model_folder(folder: Path, *, variant: str = "llama", **overrides: Any) -> ResolvedModel:
    """config.json, model.safetensors, tokenizer.json. The default ties its embeddings."""
    write_hf(folder, variant, vocab_size=VOCAB, **overrides)
    byte_backend().save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": TEMPLATE}))
    return ResolvedModel(str(folder), folder, "hf")


def loaded(resolved: ResolvedModel) -> Any:
    from medusakit.runtimes.torch.load import pretrained

    return pretrained(resolved, weights="f32", threads=1)


def answers(folder: Path, model: Any, *, count: int = 12, fingerprint: str = "0" * 64, turns: int = 2) -> Dataset:
    """Random conversations of `turns` answers with the model's own states, as `medusa train distill` leaves them."""
    import torch

    rng = np.random.default_rng(0)
    size = model.config.hidden_size
    backbone = Backbone(name="tiny", fingerprint=fingerprint, hidden_size=size, vocab_size=VOCAB)
    with ShardWriter(folder, DatasetManifest(backbone=backbone, seed=0, settings={}), shard_tokens=200) as writer:
        for group in range(count):
            ids = np.empty(0, np.int64)
            for turn in range(turns):
                prompt = np.concatenate([ids, rng.integers(3, 250, rng.integers(2, 7))])
                ids = np.concatenate([prompt, rng.integers(3, 250, rng.integers(3, 12))])
                with torch.no_grad():
                    states = hidden_states(model, torch.from_numpy(ids)[None])[0, len(prompt) - 1 : -1]
                hidden = states.numpy().astype(np.float16)
                writer.add(Sample(ids.astype(np.int32), len(prompt), hidden, group, turn))
    return Dataset([folder])
