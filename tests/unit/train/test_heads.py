"""Training a drafter on a toy set: what is updated, what is frozen, and that a cut run continues exactly."""

from __future__ import annotations

import os
import signal
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch

from drafter_toys import SIZE, SOURCE, VOCAB
from medusakit.artifact.schema import Backbone
from medusakit.drafters.vocab import draft_positions
from medusakit.errors import DatasetError, UsageError
from medusakit.train import heads
from medusakit.train.calibrate import calibrated_tree, expected_tau, measure_ranks
from medusakit.train.dataset import Dataset, ShardWriter
from medusakit.train.heads import TrainedHeads, train_heads
from medusakit.train.heads_config import HeadsConfig
from medusakit.train.heads_data import make_batch
from medusakit.train.loop import Trainer, depths_of
from medusakit.train.manifest import DatasetManifest
from medusakit.train.progress import Progress
from medusakit.train.shards import Sample

HYDRA = HeadsConfig(
    family="hydra",
    depth=2,
    params={"inner": 16},
    draft_vocab=40,
    epochs=1.5,
    batch_rows=40,
    warmup_steps=2,
    dropout=0.1,
    averaging=0.9,
    held_out=0.2,
    bf16=False,
    survival=0.01,
)
CNN_LSTM = HYDRA.model_copy(update={"family": "cnn_lstm", "params": {"window": 3, "cell": 16}})
CONTEXT = HYDRA.model_copy(update={"family": "context", "params": {"heads": 1, "inner": 16}})
SSM = HYDRA.model_copy(update={"family": "ssm", "params": {"memory": 16}})
MEDUSA = HYDRA.model_copy(update={"family": "medusa", "params": {"blocks": 1}})


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """60 answers of a toy law: token + 1, the hidden state being the embedding of the token before."""
    folder = tmp_path_factory.mktemp("set")
    rng = np.random.default_rng(0)
    backbone = Backbone(name="toy", fingerprint="0" * 64, hidden_size=SIZE, vocab_size=VOCAB)
    with ShardWriter(folder, DatasetManifest(backbone=backbone, seed=0, settings={}), shard_tokens=300) as writer:
        for group in range(60):
            start, length = int(rng.integers(0, VOCAB)), int(rng.integers(3, 20))
            ids = (start + np.arange(length + 2)) % VOCAB
            hidden = SOURCE.arrays["embed"][ids[1:-1]].astype(np.float16)
            writer.add(Sample(ids.astype(np.int32), 2, hidden, group))
    return Dataset([folder])


def weights_of(trained: TrainedHeads) -> torch.Tensor:
    return torch.cat([parameter.reshape(-1) for parameter in trained.net.parameters()])


@pytest.mark.parametrize("config", [HYDRA, MEDUSA, CONTEXT, CNN_LSTM, SSM], ids=lambda config: config.family)
def test_a_run_that_was_cut_continues_exactly(
    dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, config: HeadsConfig
) -> None:
    whole = train_heads(dataset, SOURCE, config, tmp_path / "whole", save_every=2)

    def press_at_step_3(progress: Progress) -> None:
        if progress.done == 3 and not progress.finished:
            os.kill(os.getpid(), signal.SIGINT)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(heads, "Meter", partial(heads.Meter, every_s=0.0))
        train_heads(dataset, SOURCE, config, tmp_path / "cut", on_progress=press_at_step_3, save_every=100)
    state = torch.load(tmp_path / "cut" / "heads.pt", weights_only=True)
    assert state["trainer"]["step"] == 3
    continued = train_heads(dataset, SOURCE, config, tmp_path / "cut")
    assert continued.steps == whole.steps > 3
    assert torch.equal(weights_of(continued), weights_of(whole))


def test_a_finished_run_is_only_opened(dataset: Dataset, tmp_path: Path) -> None:
    first = train_heads(dataset, SOURCE, HYDRA, tmp_path)
    before = (tmp_path / "heads.pt").stat().st_mtime_ns
    again = train_heads(dataset, SOURCE, HYDRA, tmp_path)
    assert torch.equal(weights_of(first), weights_of(again))
    state = torch.load(tmp_path / "heads.pt", weights_only=True)
    assert state["trainer"]["step"] == first.steps
    assert (tmp_path / "heads.pt").stat().st_mtime_ns == before, "it was written again"


def test_a_checkpoint_of_other_settings_is_refused(dataset: Dataset, tmp_path: Path) -> None:
    train_heads(dataset, SOURCE, HYDRA, tmp_path)
    with pytest.raises(UsageError, match="other settings or other data"):
        train_heads(dataset, SOURCE, HYDRA.model_copy(update={"seed": 1}), tmp_path)


@pytest.mark.parametrize("config", [HYDRA, CNN_LSTM, SSM], ids=lambda config: config.family)
def test_training_learns_the_law_and_the_tree_says_so(dataset: Dataset, tmp_path: Path, config: HeadsConfig) -> None:
    config = config.model_copy(update={"epochs": 25.0, "learning_rate": 1e-2, "dropout": 0.0, "draft_vocab": 50})
    trained = train_heads(dataset, SOURCE, config, tmp_path)
    held_out = [dataset[index] for index in dataset.split(config.held_out, seed=config.seed)[1].tolist()]
    ranks = measure_ranks(trained.net, held_out, trained.backdrop, batch_rows=40)
    assert min(ranks.top_k(1)) > 0.75  # never seen answers, but a law that a cell can hold
    tree = calibrated_tree(ranks, 4)
    assert tree.nodes[0].path == (0,)
    assert tree.nodes[1].path == (0, 0)
    assert expected_tau(tree, 3) > 2.5


def test_only_the_drafter_is_trained(dataset: Dataset, tmp_path: Path) -> None:
    trained = train_heads(dataset, SOURCE, HYDRA, tmp_path)
    head, embedding = trained.backdrop.head.clone(), trained.backdrop.embedding.clone()
    trainer = Trainer(trained.net.requires_grad_(True), trained.backdrop, HYDRA, 5)
    before = weights_of(trained).clone()
    trainer.step(make_batch([dataset[0], dataset[1]]))
    assert not trained.backdrop.head.requires_grad
    assert torch.equal(trained.backdrop.head, head)
    assert torch.equal(trained.backdrop.embedding, embedding)
    assert not torch.equal(weights_of(trained), before)


def test_places_whose_label_cannot_be_said_go_no_deeper(dataset: Dataset, tmp_path: Path) -> None:
    trained = train_heads(dataset, SOURCE, HYDRA, tmp_path)
    batch = make_batch([sample for sample in dataset if sample.num_generated > 4][:6])
    first, second = depths_of(trained.net, batch, trained.backdrop)
    sayable = draft_positions(trained.draft_ids, VOCAB)[batch.labels(batch.places(), 0)[1]] >= 0
    assert len(first.labels) == int(sayable.sum())
    assert first.masked == int((~sayable).sum()) > 0
    assert len(second.labels) < len(first.labels)


@pytest.mark.parametrize("limit", [120, 10_000])
def test_fewer_answers_can_be_asked_for(dataset: Dataset, tmp_path: Path, limit: int) -> None:
    """For tau against the number of tokens; whole answers, always the training side of the split."""
    config = HYDRA.model_copy(update={"max_tokens": limit, "epochs": 1})
    everything = sum(dataset[int(index)].num_generated for index in dataset.split(config.held_out, seed=config.seed)[0])
    tokens = train_heads(dataset, SOURCE, config, tmp_path).train_tokens
    assert tokens == everything if limit > everything else limit / 2 < tokens <= limit


def test_an_empty_set_and_a_foreign_width_are_refused(tmp_path: Path) -> None:
    backbone = Backbone(name="toy", fingerprint="0" * 64, hidden_size=SIZE, vocab_size=VOCAB)
    with ShardWriter(tmp_path / "a", DatasetManifest(backbone=backbone, seed=0, settings={})) as writer:
        writer.add(Sample(np.array([1, 2], np.int32), 1, np.zeros((1, SIZE), np.float16), 0))
    with pytest.raises(DatasetError, match="no answer of two tokens"):
        train_heads(Dataset([tmp_path / "a"]), SOURCE, HYDRA, tmp_path / "work")
    with ShardWriter(tmp_path / "b", DatasetManifest(backbone=backbone, seed=0, settings={})) as writer:
        writer.add(Sample(np.arange(9, dtype=np.int32), 1, np.zeros((8, SIZE + 1), np.float16), 0))
    with pytest.raises(DatasetError, match="width 17, the model 16"):
        train_heads(Dataset([tmp_path / "b"]), SOURCE, HYDRA, tmp_path / "work")


def test_unknown_family_is_refused(dataset: Dataset, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="'eagle'"):
        train_heads(dataset, SOURCE, HYDRA.model_copy(update={"family": "eagle"}), tmp_path)
