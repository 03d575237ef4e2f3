"""The loop of joint training: one update a step, two rates, and a state that continues exactly.

Processes and devices are accelerate's affair: started by its launcher, every process takes its own passages of a step.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from medusakit.train.joint.config import JointConfig
from medusakit.train.joint.net import JointNet, JointReport
from medusakit.train.joint.passages import Step


class JointTrainer:
    """Network and optimiser of one run, in this process. accelerator: accelerate's, which knows the others."""

    def __init__(
        self, net: JointNet, config: JointConfig, total_steps: int, accelerator: Any, *, seed: int = 0
    ) -> None:
        self.config, self.total_steps, self.step_index = config, total_steps, 0
        self._seed, self._accelerator = seed, accelerator
        adapter, heads = net.parts()
        groups = [{"params": adapter, "share": 1.0}, {"params": heads, "share": config.head_rate}]
        optimizer = torch.optim.AdamW(
            groups, lr=config.learning_rate, betas=(0.9, 0.95), weight_decay=config.weight_decay
        )
        self._net, self._optimizer = accelerator.prepare(net, optimizer)
        self._trained = [value for group in self._optimizer.param_groups for value in group["params"]]
        self._average = [value.detach().clone() for value in self._trained]

    def step(self, step: Step) -> JointReport:
        """One update. Random numbers depend on seed and step alone, so a continued run draws the same ones."""
        torch.manual_seed(self._seed * 1_000_003 + self.step_index)
        rate = backbone_rate(self.config, self.step_index, self.total_steps)
        for group in self._optimizer.param_groups:
            group["lr"] = rate * group["share"]
        self._net.train()
        loss, report = self._net(step, heads_weight(self.config, self.step_index, self.total_steps))
        self._optimizer.zero_grad()
        self._accelerator.backward(loss)
        self._accelerator.clip_grad_norm_(self._trained, self.config.clip_norm)
        self._optimizer.step()
        self.step_index += 1
        self._update_average()
        typed: JointReport = report
        return typed

    def state_dict(self) -> dict[str, Any]:
        """Of this process: where parameters are split between processes, of its part."""
        return {
            "step": self.step_index,
            "trained": [value.detach() for value in self._trained],
            "average": self._average,
            "optimizer": self._optimizer.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.step_index = state["step"]
        _copy(self._trained, state["trained"])
        _copy(self._average, state["average"])
        self._optimizer.load_state_dict(state["optimizer"])

    def finish(self) -> dict[str, Tensor]:
        """What was trained, by its name in the network, on the CPU: the averaged weights. Whole only in process 0."""
        _copy(self._trained, self._average)
        names = {name for name, value in self._accelerator.unwrap_model(self._net).named_parameters()
                 if value.requires_grad}  # fmt: skip
        state = self._accelerator.get_state_dict(self._net)
        return {name: state[name].detach().cpu() for name in sorted(names & state.keys())}

    def _update_average(self) -> None:
        keep = min(self.config.averaging, self.step_index / (self.step_index + 10))
        with torch.no_grad():
            for average, value in zip(self._average, self._trained, strict=True):
                average.lerp_(value, 1 - keep)


def backbone_rate(config: JointConfig, step: int, total: int) -> float:
    """Linear warm-up, then a cosine down to `final_rate`."""
    warm = min(1.0, (step + 1) / max(config.warmup_steps, 1))
    cosine = 0.5 * (1 + math.cos(math.pi * min(1.0, step / total)))
    return config.learning_rate * warm * (config.final_rate + (1 - config.final_rate) * cosine)


def heads_weight(config: JointConfig, step: int, total: int) -> float:
    """lambda: constant, or growing as a quarter of a sine (Medusa, section 2.3.2 with the official schedule)."""
    ramp = math.sin(math.pi / 2 * min(1.0, step / total)) if config.has_ramp else 1.0
    return config.heads_weight * ramp


def _copy(into: list[Tensor], values: list[Tensor]) -> None:
    with torch.no_grad():
        for target, value in zip(into, values, strict=True):
            target.copy_(value)
