"""One run of joint training, from the answers on disk: resumable, and the same to the bit where it was cut."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from medusakit.artifact.files import make_folder
from medusakit.errors import DatasetError, MissingExtraError
from medusakit.train.checkpoint import Checkpoint
from medusakit.train.dataset import Dataset
from medusakit.train.heads import training_answers
from medusakit.train.heads_config import HeadsConfig
from medusakit.train.interrupt import deferred_interrupt
from medusakit.train.joint.config import JointConfig
from medusakit.train.joint.net import JointNet, JointReport, teacher_states
from medusakit.train.joint.passages import Passage, Step, epoch_steps, make_step, passages_of
from medusakit.train.joint.trainer import JointTrainer
from medusakit.train.loop import Backdrop
from medusakit.train.progress import Meter, OnProgress, ignore

_CLOSE = 0.05  # relative error of stored states: float16 and another runtime's sums stay far below


@dataclass(frozen=True, slots=True)
class Parts:
    """What a run begins with: a transformers model, which it changes in place, a drafter, and what that reads."""

    backbone: Any
    heads: nn.Module
    backdrop: Backdrop


def train_joint(
    parts: Parts,
    dataset: Dataset,
    config: JointConfig,
    heads_config: HeadsConfig,
    work: Path,
    accelerator: Any,
    *,
    name: str = "joint",
    on_progress: OnProgress = ignore,
    save_every: int = 20,
) -> dict[str, Tensor]:
    """Train an adapter and the heads on the training answers; gives what was trained, by its name in a `JointNet`.

    work         keeps what is trained, a file of each process, from which a cut run continues
    accelerator  as `open_accelerator` gives it
    Raises DatasetError if there is nothing to train on, or the stored states are not this model's.
    """
    passages = _passages(dataset, heads_config)
    torch.manual_seed(heads_config.seed)
    backdrop = parts.backdrop.to(accelerator.device)
    net = JointNet(parts.backbone.to(accelerator.device), parts.heads, backdrop, config, heads_config)
    if config.objective == "distill" and config.teacher == "stored":
        _check_states(net, make_step(passages[:2]))
    plan = _plan([len(passage.ids) for passage in passages], config, heads_config.seed, accelerator)
    trainer = JointTrainer(net, config, len(plan), accelerator, seed=heads_config.seed)
    checkpoint = Checkpoint(make_folder(work) / f"{name}-{accelerator.process_index}.pt", {
        "config": config.model_dump(exclude={"quality"}),
        "heads": heads_config.model_dump(),
        "shards": [entry.sha256 for manifest in dataset.manifests for entry in manifest.shards],
        "processes": accelerator.num_processes,
    })  # fmt: skip
    checkpoint.restore(trainer)
    main = accelerator.is_main_process
    _loop(trainer, passages, plan, lambda: checkpoint.save(trainer), save_every, name, on_progress if main else ignore)
    return trainer.finish()


def _loop(
    trainer: JointTrainer,
    passages: Sequence[Passage],
    plan: Sequence[Sequence[int]],
    save: Callable[[], None],
    save_every: int,
    name: str,
    on_progress: OnProgress,
) -> None:
    meter = Meter(name, trainer.total_steps, on_progress, unit="steps")
    report: JointReport | None = None
    with deferred_interrupt() as pressed:
        for indices in plan[trainer.step_index :]:
            report = trainer.step(make_step([passages[index] for index in indices]))
            meter.report(trainer.step_index, _note(report))
            if pressed() or trainer.step_index % save_every == 0:
                save()
            if pressed():
                raise KeyboardInterrupt
    if report is not None:  # otherwise the checkpoint was finished, and is only opened
        save()
    meter.finish(trainer.step_index, _note(report) if report else "nothing was left to train")


def _passages(dataset: Dataset, heads_config: HeadsConfig) -> list[Passage]:
    indices = training_answers(dataset, heads_config)[0].tolist()
    passages = passages_of(sample for sample in map(dataset.__getitem__, indices) if sample.num_generated > 1)
    if not passages:
        raise DatasetError("the training set has no answer of two tokens or more", hint="medusa train distill")
    return passages


def open_accelerator() -> Any:
    """accelerate's, one process or, under `accelerate launch`, one of several. Raises MissingExtraError without it."""
    try:
        from accelerate import Accelerator, InitProcessGroupKwargs
    except ImportError as cause:
        raise MissingExtraError(
            "joint training needs accelerate, which is not installed", hint="pip install 'medusakit[torch]'"
        ) from cause
    patient = InitProcessGroupKwargs(timeout=timedelta(days=2))  # the others wait while the first trains heads
    return Accelerator(cpu=not torch.cuda.is_available(), kwargs_handlers=[patient])


def _plan(lengths: Sequence[int], config: JointConfig, seed: int, accelerator: Any) -> list[list[int]]:
    """The passages of this process in every step; the order depends on seed, epoch and number of processes alone."""
    rngs = [np.random.default_rng([seed, epoch]) for epoch in range(config.epochs)]
    batches = [batch for rng in rngs for batch in epoch_steps(lengths, config.batch_tokens, rng)]
    processes, own = accelerator.num_processes, accelerator.process_index
    steps = -(-len(batches) // processes)  # the last one may take batches from the beginning
    return [batches[(step * processes + own) % len(batches)] for step in range(steps)]


def _check_states(net: JointNet, step: Step) -> None:
    """The stored states must be what the backbone computes with its adapter off."""
    own = teacher_states(net.backbone, step)
    error = float((own.cpu() - step.teacher()).norm() / own.norm())
    if not error < _CLOSE:
        raise DatasetError(
            f"the stored hidden states are not this model's: they differ by {error:.0%}",
            hint='teacher = "computed" in [joint] of the recipe, or medusa train distill again',
        )


def _note(report: JointReport) -> str:
    losses = report.heads.loss
    top1 = " ".join(f"{share:.2f}" for share in report.heads.top1)
    return f"backbone {report.backbone:.4f}, heads {sum(losses) / len(losses):.2f}, top-1 by depth {top1}"
