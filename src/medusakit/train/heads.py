"""Stage 3, heads: a drafter is trained from the shards on disk, without the backbone's layers."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from medusakit.artifact.files import make_folder
from medusakit.artifact.schema import DrafterConfig
from medusakit.drafters.registry import FAMILIES
from medusakit.drafters.rows import TableRows, rms_normalised
from medusakit.drafters.vocab import choose_draft_ids, coverage, draft_positions
from medusakit.errors import DatasetError, UsageError
from medusakit.models.spec import WeightSource
from medusakit.train.checkpoint import Checkpoint
from medusakit.train.dataset import Dataset
from medusakit.train.heads_config import HeadsConfig
from medusakit.train.heads_data import count_tokens, epoch_batches, make_batch
from medusakit.train.interrupt import deferred_interrupt
from medusakit.train.loop import Backdrop, StepReport, Trainer
from medusakit.train.progress import Meter, OnProgress, ignore

CHECKPOINT = "heads.pt"


@dataclass(frozen=True, slots=True)
class TrainedHeads:
    """A trained drafter, ready for calibration and for the artifact.

    net        evaluation mode, weights as they will be stored (rounded to float16)
    draft_ids  [Vd] int64
    """

    config: DrafterConfig
    net: nn.Module
    backdrop: Backdrop
    draft_ids: NDArray[np.int64]
    coverage: float
    train_tokens: int
    steps: int

    def tensors(self) -> dict[str, NDArray[Any]]:
        """What the artifact stores, float16."""
        stored: dict[str, NDArray[Any]] = {
            name: value.detach().to(torch.float16).numpy() for name, value in self.net.state_dict().items()
        }
        if self.config.draft_vocab_size:
            stored["draft_ids"] = self.draft_ids.astype(np.int32)
        return stored


def build_net(config: DrafterConfig, hidden_size: int, head: Tensor, dropout: float = 0.0) -> nn.Module:
    """The family's network, untrained. head [Vd, d]: the LM head's rows of the draft vocabulary."""
    if config.family == "hydra":
        from medusakit.drafters.hydra.config import hydra_params
        from medusakit.drafters.hydra.torch import HydraNet

        return HydraNet(hydra_params(config), config.depth, hidden_size, dropout)
    if config.family == "medusa":
        from medusakit.drafters.medusa.config import medusa_params
        from medusakit.drafters.medusa.torch import MedusaNet

        return MedusaNet(medusa_params(config), config.depth, hidden_size, head, dropout)
    if config.family == "context":
        from medusakit.drafters.context.config import context_params
        from medusakit.drafters.context.torch import ContextNet

        return ContextNet(context_params(config), config.depth, hidden_size, dropout)
    if config.family == "cnn_lstm":
        from medusakit.drafters.cnn_lstm.config import cnn_lstm_params
        from medusakit.drafters.cnn_lstm.torch import CnnLstmNet

        return CnnLstmNet(cnn_lstm_params(config), config.depth, hidden_size, dropout)
    if config.family == "ssm":
        from medusakit.drafters.ssm.config import ssm_params
        from medusakit.drafters.ssm.torch import SsmNet

        return SsmNet(ssm_params(config), config.depth, hidden_size, dropout)
    raise UsageError(f"no drafter family {config.family!r} can be trained", hint=f"one of: {', '.join(FAMILIES)}")


def train_heads(
    dataset: Dataset,
    source: WeightSource,
    config: HeadsConfig,
    work: Path,
    *,
    always_ids: Iterable[int] = (),
    on_progress: OnProgress = ignore,
    save_every: int = 200,
) -> TrainedHeads:
    """Train on the training side of the split; `work` keeps a checkpoint, from which a cut run continues exactly.

    always_ids  ids that the draft vocabulary must hold: special, digit, white-space and byte tokens
    Ctrl-C saves and goes on as KeyboardInterrupt. Raises DatasetError if there is nothing to train on, or the dataset
    is of another model's width; UsageError or ArtifactError for settings that no drafter can have.
    """
    run = _Run(dataset, source, config, always_ids)
    checkpoint = Checkpoint(make_folder(work) / CHECKPOINT, run.identity())
    checkpoint.restore(run.trainer)
    meter = Meter(f"heads {config.family}", run.trainer.total_steps, on_progress, unit="steps")
    with deferred_interrupt() as pressed:
        run.train(meter, lambda: checkpoint.save(run.trainer), pressed, save_every)
    trained = run.result()
    meter.finish(run.trainer.step_index, _expectation(run.last))
    return trained


def untrained_heads(
    dataset: Dataset, source: WeightSource, config: HeadsConfig, *, always_ids: Iterable[int] = ()
) -> TrainedHeads:
    """What `train_heads` begins with."""
    return _Run(dataset, source, config, always_ids).result()


class _Run:
    def __init__(self, dataset: Dataset, source: WeightSource, config: HeadsConfig, always_ids: Iterable[int]) -> None:
        self.config, self._dataset = config, dataset
        self._check(dataset, source)
        self._indices, self._lengths = training_answers(dataset, config)
        if not self._lengths or max(self._lengths) < 2:
            raise DatasetError("the training set has no answer of two tokens or more", hint="medusa train distill")
        counts = count_tokens((dataset[index] for index in self._indices.tolist()), source.spec.vocab_size)
        self._draft_ids = choose_draft_ids(counts, config.draft_vocab, always_ids)
        self._coverage = coverage(counts, self._draft_ids)
        self._drafter = config.drafter(source.spec.vocab_size)
        self._backdrop = load_backdrop(source, self._draft_ids)
        torch.manual_seed(config.seed)
        net = build_net(self._drafter, source.spec.hidden_size, self._backdrop.head, config.dropout)
        self.trainer = Trainer(net, self._backdrop, config, self._total_steps())
        self.last: StepReport | None = None

    def identity(self) -> dict[str, Any]:
        """What a checkpoint must agree with."""
        shards = [entry.sha256 for manifest in self._dataset.manifests for entry in manifest.shards]
        return {"config": self.config.model_dump(), "shards": shards}

    def train(self, meter: Meter, save: Callable[[], None], pressed: Callable[[], bool], save_every: int) -> None:
        for batch in self._remaining():
            self.last = self.trainer.step(make_batch([self._dataset[int(self._indices[index])] for index in batch]))
            meter.report(self.trainer.step_index, _note(self.last))
            if pressed():
                save()
                raise KeyboardInterrupt
            if self.trainer.step_index % save_every == 0:
                save()
        if self.last is not None:  # otherwise the checkpoint was finished, and is only opened
            save()

    def result(self) -> TrainedHeads:
        net = self.trainer.result.eval().requires_grad_(False)
        for parameter in net.parameters():
            parameter.copy_(parameter.to(torch.float16).float())
        return TrainedHeads(
            self._drafter,
            net,
            self._backdrop,
            self._draft_ids,
            self._coverage,
            sum(self._lengths),
            self.trainer.step_index,
        )

    def _remaining(self) -> Iterable[Sequence[int]]:
        """Batches from the trainer's step on; the order depends on seed and epoch alone."""
        epoch, start = 0, 0
        while start < self.trainer.total_steps:
            batches = self._epoch(epoch)
            for offset, batch in enumerate(batches):
                if self.trainer.step_index <= start + offset < self.trainer.total_steps:
                    yield batch
            epoch, start = epoch + 1, start + len(batches)

    def _total_steps(self) -> int:
        """Whole epochs, and that share of the last one which `epochs` asks for."""
        whole, part = int(self.config.epochs), self.config.epochs % 1
        steps = sum(len(self._epoch(epoch)) for epoch in range(whole))
        return max(1, steps + math.ceil(part * len(self._epoch(whole))))

    def _epoch(self, epoch: int) -> list[list[int]]:
        rng = np.random.default_rng([self.config.seed, epoch])
        return epoch_batches(self._lengths, self.config.batch_rows, rng)

    def _check(self, dataset: Dataset, source: WeightSource) -> None:
        width = dataset.shards[0].hidden_size if dataset.shards else source.spec.hidden_size
        if width != source.spec.hidden_size:
            raise DatasetError(
                f"the training set has hidden states of width {width}, the model {source.spec.hidden_size}",
                hint="medusa train distill -m MODEL",
            )


def training_answers(dataset: Dataset, config: HeadsConfig) -> tuple[NDArray[np.int64], list[int]]:
    """(indices, generated tokens) of the answers to train on."""
    indices = dataset.split(config.held_out, seed=config.seed)[0]
    lengths = np.array([dataset[index].num_generated for index in indices.tolist()], np.int64)
    if config.max_tokens:
        order = np.random.default_rng(config.seed).permutation(len(indices))
        drawn = order[np.cumsum(lengths[order]) <= config.max_tokens]
        indices, lengths = indices[drawn], lengths[drawn]
    return indices, lengths.tolist()


def load_backdrop(source: WeightSource, draft_ids: NDArray[np.int64]) -> Backdrop:
    """The frozen rows that a drafter reads, float32."""
    embedding = rms_normalised(source.tensor("embed").f32())
    return Backdrop(
        torch.from_numpy(TableRows.lm_head(source).take(draft_ids)),
        torch.from_numpy(embedding),
        torch.from_numpy(draft_positions(draft_ids, source.spec.vocab_size)),
    )


def _note(report: StepReport) -> str:
    top1 = " ".join(f"{share:.2f}" for share in report.top1)
    return f"loss {sum(report.loss) / len(report.loss):.2f}, top-1 by depth {top1}"


def _expectation(report: StepReport | None) -> str:
    """What is good and what is not worth serving, said of the first depth (held-out figures come with calibration)."""
    if report is None:
        return "nothing was left to train"
    first = report.top1[0]
    verdict = "good" if first >= 0.5 else "usable" if first >= 0.3 else "not worth serving: more answers are needed"
    return f"top-1 of the next guess on training answers {first:.2f}: {verdict}"
