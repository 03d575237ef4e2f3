"""The training loop of a drafter: one step is a batch of whole answers, all depths at once.

Knows nothing of files or families: it is given a network (see drafters/<family>/torch.py), the frozen rows of the
backbone that it reads, and batches. The state of a run is one dictionary, so a run that was cut continues exactly.
"""

from __future__ import annotations

import math
from collections.abc import Generator
from contextlib import AbstractContextManager, nullcontext
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from medusakit.train.heads_config import HeadsConfig
from medusakit.train.heads_data import Batch
from medusakit.train.losses import soft_targets, sparse_cross_entropy

_LOG_ROWS = 128


@dataclass(frozen=True, slots=True)
class Backdrop:
    """What is frozen.

    head       [Vd, d] LM head's rows of the draft vocabulary
    embedding  [V, d] rms-normalised embedding of every token
    positions  [V] place of a token in the draft vocabulary, -1 outside it
    """

    head: Tensor
    embedding: Tensor
    positions: Tensor

    def to(self, device: torch.device | str) -> Backdrop:
        return Backdrop(self.head.to(device), self.embedding.to(device), self.positions.to(device))


@dataclass(frozen=True, slots=True)
class StepReport:
    """Of one step, per depth: mean loss, top-1 share on some of the rows, and labels the draft vocabulary lacks."""

    loss: tuple[float, ...]
    top1: tuple[float, ...]
    rows: int
    masked: int


@dataclass(frozen=True, slots=True)
class Depth:
    """One depth of a batch, for the M places with a usable label.

    states       [M, d]
    labels       [M] draft ids
    target_rows  (answer [M], row [M]) whose hidden states predict those labels
    masked       labels outside the draft vocabulary
    """

    states: Tensor
    labels: Tensor
    target_rows: tuple[Tensor, Tensor]
    masked: int


def depths_of(
    net: nn.Module, batch: Batch, backdrop: Backdrop, hidden: Tensor | None = None
) -> Generator[Depth, Tensor | None, None]:
    """Run the network along the true path of every answer. Only places with a usable label go on.

    hidden  [B, T, d] what the network reads; None: the batch's own states
    send    [M] bool: which of those go on to the next depth (all of them, if nothing is sent)
    """
    hidden = torch.from_numpy(batch.hidden).float() if hidden is None else hidden
    device = hidden.device
    answer, row = (torch.from_numpy(part).to(device) for part in batch.places())
    states = net(hidden, backdrop.embedding[torch.from_numpy(batch.tokens).to(device)], (answer, row))
    going_on: Tensor | None = None
    for head in range(int(net.max_depth)):
        state = states.send(going_on)
        places = answer.cpu().numpy(), row.cpu().numpy()
        target, label = (torch.from_numpy(part).to(device) for part in batch.labels(places, head))
        place = torch.where(label >= 0, backdrop.positions[label.clamp(min=0)], -1)
        going_on = (place >= 0).nonzero()[:, 0]
        masked = int((label >= 0).sum()) - len(going_on)
        answer, row = answer[going_on], row[going_on]
        wanted = yield Depth(state[going_on], place[going_on], (answer, target[going_on]), masked)
        if wanted is not None:
            going_on, answer, row = going_on[wanted], answer[wanted], row[wanted]


class Trainer:
    """Network, optimiser and average of one run."""

    def __init__(self, net: nn.Module, backdrop: Backdrop, config: HeadsConfig, total_steps: int) -> None:
        self.net, self.config, self.total_steps, self.step_index = net, config, total_steps, 0
        self._backdrop = backdrop
        self._projection = backdrop.head.to(torch.bfloat16) if config.bf16 else backdrop.head
        self._average = deepcopy(net).requires_grad_(False) if config.averaging else None
        self._optimizer = torch.optim.AdamW(
            net.parameters(), lr=config.learning_rate, betas=(0.9, 0.95), weight_decay=config.weight_decay
        )

    @property
    def result(self) -> nn.Module:
        """The weights to keep: the average, if there is one."""
        return self._average or self.net

    def step(self, batch: Batch) -> StepReport:
        """One update. Random numbers depend on seed and step alone, so a continued run draws the same ones."""
        torch.manual_seed(self.config.seed * 1_000_003 + self.step_index)
        for group in self._optimizer.param_groups:
            group["lr"] = self._rate()
        self.net.train()
        loss, report = self._loss(batch)
        self._optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.net.parameters(), self.config.clip_norm)
        self._optimizer.step()
        self.step_index += 1
        self._update_average()
        return report

    def state_dict(self) -> dict[str, Any]:
        average = None if self._average is None else self._average.state_dict()
        return {
            "step": self.step_index,
            "net": self.net.state_dict(),
            "average": average,
            "optimizer": self._optimizer.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.step_index = state["step"]
        self.net.load_state_dict(state["net"])
        self._optimizer.load_state_dict(state["optimizer"])
        if self._average is not None:
            self._average.load_state_dict(state["average"])

    def _loss(self, batch: Batch) -> tuple[Tensor, StepReport]:
        with self._format():
            return heads_loss(self.net, batch, self._backdrop, self._projection, self.config)

    def _rate(self) -> float:
        """Linear warm-up, then a cosine down to `final_rate`."""
        warm = min(1.0, (self.step_index + 1) / max(self.config.warmup_steps, 1))
        cosine = 0.5 * (1 + math.cos(math.pi * min(1.0, self.step_index / self.total_steps)))
        return self.config.learning_rate * warm * (self.config.final_rate + (1 - self.config.final_rate) * cosine)

    def _update_average(self) -> None:
        if self._average is None:
            return
        keep = min(self.config.averaging, self.step_index / (self.step_index + 10))
        with torch.no_grad():
            for average, value in zip(self._average.parameters(), self.net.parameters(), strict=True):
                average.lerp_(value, 1 - keep)

    def _format(self) -> AbstractContextManager[Any]:
        return torch.autocast("cpu", dtype=torch.bfloat16) if self.config.bf16 else nullcontext()


def heads_loss(
    net: nn.Module,
    batch: Batch,
    backdrop: Backdrop,
    projection: Tensor,
    config: HeadsConfig,
    hidden: Tensor | None = None,
) -> tuple[Tensor, StepReport]:
    """sum_k decay^k CE_k / rows, in the format of the run.

    A place whose label the drafter holds for improbable goes no deeper: no tree would follow it there.
    projection  [Vd, d] the draft vocabulary's rows of the LM head in that format
    hidden      [B, T, d] what the network reads; None: the batch's own states, of which the targets always are
    """
    device = projection.device
    total, losses, top1, masked = torch.zeros((), device=device), [], [], 0
    rows = len(batch.places()[0])
    teacher = torch.from_numpy(batch.hidden).to(device).float()
    depths = depths_of(net, batch, backdrop, hidden)
    wanted: Tensor | None = None
    for head in range(config.depth):
        depth = depths.send(wanted)
        targets = soft_targets(teacher[depth.target_rows], projection, depth.labels, hard=config.hard, top=config.top)
        own = getattr(net, "projection", None)
        read = projection if own is None else own[head]
        weight = config.decay**head / rows
        weights = torch.full((len(depth.labels),), weight, device=device)
        loss, likely = sparse_cross_entropy(depth.states, read, targets, weights)
        total = total + loss
        losses.append(float(loss.detach()) / weight / max(len(depth.labels), 1))
        top1.append(_top1(depth, read, projection.dtype))
        masked += depth.masked
        wanted = likely >= config.survival
    return total, StepReport(tuple(losses), tuple(top1), batch.num_rows, masked)


def _top1(depth: Depth, read: Tensor, dtype: torch.dtype) -> float:
    with torch.no_grad():
        best = (depth.states[:_LOG_ROWS].to(dtype) @ read.to(dtype).T).argmax(-1)
    return float((best == depth.labels[:_LOG_ROWS]).float().mean()) if len(best) else 0.0
