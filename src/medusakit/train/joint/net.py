"""Backbone, adapter and heads as one module, whose forward is the loss of a step."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from medusakit.errors import MissingExtraError, UnsupportedModelError
from medusakit.train.heads_config import HeadsConfig
from medusakit.train.joint.config import JointConfig
from medusakit.train.joint.passages import Step
from medusakit.train.loop import Backdrop, StepReport, heads_loss
from medusakit.train.losses import divergence, hard_targets, sparse_cross_entropy

_PIECE = 512  # rows of the full vocabulary at a time


@dataclass(frozen=True, slots=True)
class JointReport:
    """Of one step: the backbone's loss per token, and the heads' report."""

    backbone: float
    heads: StepReport


class JointNet(nn.Module):  # type: ignore[misc]  # torch is not typed for mypy here
    """L = L_backbone + lambda * L_heads (Medusa, eq. 4), both means over the rows of a step.

    The LM head is frozen: heads read its rows, and where embeddings are tied it is the embedding too.
    """

    def __init__(
        self, backbone: Any, heads: nn.Module, backdrop: Backdrop, config: JointConfig, heads_config: HeadsConfig
    ) -> None:
        """backbone: a transformers model. It gets an adapter, switched on, and is put into training mode by `train`."""
        super().__init__()
        self.backbone, self.heads = with_adapter(backbone, config), heads
        self._backdrop, self._config, self._heads_config = backdrop, config, heads_config
        self._dtype = torch.bfloat16 if config.bf16 else torch.float32
        self._rows = backdrop.head.to(self._dtype)
        self._projection = output_layer(backbone).weight.detach().to(self._dtype)

    def forward(self, step: Step, heads_weight: float) -> tuple[Tensor, JointReport]:
        with self.format():
            device = self._projection.device
            flat = self.hidden_states(step.ids.to(device)).flatten(0, 1).float()
            backbone = self._backbone_loss(flat[step.rows.to(device)], step) / len(step.rows)
            heads, report = heads_loss(
                self.heads, step.heads, self._backdrop, self._rows, self._heads_config, flat[step.places.to(device)]
            )
        return backbone + heads_weight * heads, JointReport(float(backbone.detach()), report)

    def hidden_states(self, ids: Tensor) -> Tensor:
        """[B, T, d]: what the LM head reads. ids [B, T]."""
        return hidden_states(self.backbone, ids)

    def parts(self) -> tuple[list[nn.Parameter], list[nn.Parameter]]:
        """What is trained: (the adapter's parameters, the heads' parameters)."""
        adapter = [parameter for parameter in self.backbone.parameters() if parameter.requires_grad]
        return adapter, list(self.heads.parameters())

    def format(self) -> AbstractContextManager[Any]:
        device = self._projection.device.type
        return torch.autocast(device, dtype=torch.bfloat16) if self._config.bf16 else nullcontext()

    def _backbone_loss(self, states: Tensor, step: Step) -> Tensor:
        """Summed over rows."""
        if self._config.objective == "distill":
            return divergence(states, self._teacher(step), self._projection)
        labels = step.labels().to(states.device)
        total = states.new_zeros(())
        for piece, label in zip(states.split(_PIECE), labels.split(_PIECE), strict=True):
            ones = torch.ones(len(label), device=states.device)
            total = total + sparse_cross_entropy(piece, self._projection, hard_targets(label), ones)[0]
        return total

    def _teacher(self, step: Step) -> Tensor:
        if self._config.teacher == "stored":
            return step.teacher().to(self._projection.device)
        return teacher_states(self.backbone, step)


def with_adapter(model: Any, config: JointConfig) -> Any:
    """The model with a LoRA adapter (2106.09685) on its linear layers; everything else is frozen.

    B starts at zero, so the model is unchanged until it is trained. Raises MissingExtraError without peft.
    """
    try:
        from peft import LoraConfig, get_peft_model
    except ImportError as cause:
        raise MissingExtraError(
            "joint training needs peft, which is not installed", hint="pip install 'medusakit[torch]'"
        ) from cause
    model.requires_grad_(False)
    settings = LoraConfig(
        r=config.rank,
        lora_alpha=config.alpha,
        lora_dropout=config.dropout,
        target_modules="all-linear",  # peft leaves out the output layer
        task_type="CAUSAL_LM",
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # peft asks transformers by a name that is going away
        return get_peft_model(model, settings)


def tuned(model: Any, config: JointConfig, trained: dict[str, Tensor]) -> Any:
    """The model with its trained adapter, for inference. trained: by names of the adapted model."""
    adapted = with_adapter(model, config)
    missing = adapted.load_state_dict(trained, strict=False).unexpected_keys
    if missing:
        raise ValueError(f"the adapter has no parameter {missing[0]}")
    return adapted.eval().requires_grad_(False)


def output_layer(model: Any) -> Any:
    """The LM head. Raises UnsupportedModelError where the model's scores are not simply its product with the states."""
    head = model.get_output_embeddings()
    with torch.no_grad():
        ids = torch.arange(1, 6, device=head.weight.device)[None]
        scores = model(input_ids=ids, use_cache=False).logits.float()
        plain = hidden_states(model, ids).float() @ head.weight.float().T
    if not torch.allclose(scores, plain, rtol=1e-2, atol=1e-2 * float(scores.abs().max())):
        raise UnsupportedModelError(
            f"{type(model).__name__} changes its scores after the LM head, which joint training does not know",
            hint="medusa train all   trains heads alone",
        )
    return head


def hidden_states(model: Any, ids: Tensor) -> Tensor:
    """[B, T, d]: what the LM head reads, from the model's own forward; the head itself computes one position."""
    read: list[Tensor] = []

    def note(module: nn.Module, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        read.append(inputs[0])
        return (inputs[0][:, -1:],)

    handle = model.get_output_embeddings().register_forward_pre_hook(note)
    try:
        model(input_ids=ids, use_cache=False)
    finally:
        handle.remove()
    return read[0]


def teacher_states(model: Any, step: Step) -> Tensor:
    """[N, d] float32: the states of `step.rows` with the adapter off: the same weights, so one model in memory."""
    with torch.no_grad(), model.disable_adapter(), evaluating(model):
        device = model.get_input_embeddings().weight.device
        return hidden_states(model, step.ids.to(device)).flatten(0, 1)[step.rows.to(device)].float()


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """No dropout inside the block."""
    was = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(was)
