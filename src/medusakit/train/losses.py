"""What a drafter is trained to say: the backbone's own next token, softly or exactly.

The target of a row is a sparse distribution over the draft vocabulary: the backbone's best `top` ids with their
probabilities, mixed with the token it really wrote. For a frozen projection the loss and its gradient are computed in
one pass (`sparse_cross_entropy`): autograd would keep and revisit a softmax over the draft vocabulary for every depth.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

_LEAST = 1e-8  # of a probability whose logarithm is reported


@dataclass(frozen=True, slots=True)
class Targets:
    """Sparse targets of N rows: ids [N, m] int64 (draft ids), probs [N, m] float32, each row summing to 1."""

    ids: Tensor
    probs: Tensor

    def take(self, rows: Tensor) -> Targets:
        return Targets(self.ids[rows], self.probs[rows])


def hard_targets(labels: Tensor) -> Targets:
    """Plain cross entropy. labels [N] int64 draft ids."""
    return Targets(labels[:, None], torch.ones(len(labels), 1, device=labels.device))


def soft_targets(hidden: Tensor, projection: Tensor, labels: Tensor, *, hard: float, top: int = 16) -> Targets:
    """The backbone's distribution LMhead(h) over the draft vocabulary, cut to its `top` ids, mixed with the label.

    hidden [N, d] at the position that predicts the label; projection [Vd, d]; hard: share of the label, in [0, 1].
    The distillation of Hinton et al. (1503.02531) at temperature 1.
    """
    if hard >= 1.0:
        return hard_targets(labels)
    with torch.no_grad():
        best = (hidden.to(projection.dtype) @ projection.T).topk(top, dim=-1)
        probs = torch.softmax(best.values.float(), dim=-1) * (1.0 - hard)
    share = torch.full((len(labels), 1), hard, device=labels.device)
    return Targets(torch.cat([labels[:, None], best.indices], 1), torch.cat([share, probs], 1))


class _SparseCrossEntropy(torch.autograd.Function):  # type: ignore[misc]  # torch is not typed for mypy here
    """sum_rows weight * CE(target, softmax(x W^T)) with W frozen: keeps [N, d] for the backward pass, never [N, Vd]."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, projection: Tensor, ids: Tensor, probs: Tensor, weights: Tensor
    ) -> tuple[Tensor, Tensor]:
        q = torch.softmax(x.to(projection.dtype) @ projection.T, dim=-1)
        chosen = q.gather(1, ids).float()
        loss = -(weights[:, None] * probs * chosen.clamp(min=_LEAST).log()).sum()
        q.scatter_add_(1, ids, -probs.to(q.dtype))
        ctx.save_for_backward((q @ projection).to(x.dtype) * weights[:, None].to(x.dtype))
        ctx.mark_non_differentiable(chosen)
        return loss, chosen[:, 0]

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None, None, None]:
        (gradient,) = ctx.saved_tensors
        return gradient * grads[0].to(gradient.dtype), None, None, None, None


def sparse_cross_entropy(x: Tensor, projection: Tensor, targets: Targets, weights: Tensor) -> tuple[Tensor, Tensor]:
    """Weighted sum of cross entropies of rows x [N, d] through a projection [Vd, d], and each label's probability [N].

    The label is the first of a row's targets. A frozen projection takes the fused path; a trained one goes through
    autograd.
    """
    if projection.requires_grad:
        log_q = torch.log_softmax(torch.nn.functional.linear(x, projection).float(), dim=-1).gather(1, targets.ids)
        return -(weights[:, None] * targets.probs * log_q).sum(), log_q[:, 0].detach().exp()
    result: tuple[Tensor, Tensor] = _SparseCrossEntropy.apply(x, projection, targets.ids, targets.probs, weights)
    return result


class _Divergence(torch.autograd.Function):  # type: ignore[misc]  # torch is not typed for mypy here
    """sum_rows KL(softmax(t W^T) || softmax(x W^T)) with W and t frozen, in pieces of rows: never [N, V] at once.

    In a short format the student's scores are the teacher's plus (x - t) W^T: of nearly equal states the difference is
    then as exact as the states are, where two products would each be rounded.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, teacher: Tensor, projection: Tensor, rows: int) -> Tensor:
        total, gradients = x.new_zeros((), dtype=torch.float32), []
        for states, anchors in zip(x.split(rows), teacher.split(rows), strict=True):
            p = torch.softmax((anchors.to(projection.dtype) @ projection.T).float(), dim=-1)
            change = ((states - anchors).to(projection.dtype) @ projection.T).float()
            total -= torch.dot(p.flatten(), change.flatten())
            q = change.exp_().mul_(p)  # up to its sum: softmax(a + c) = softmax(a) e^c / sum(softmax(a) e^c)
            mass = q.sum(-1, keepdim=True)
            total += mass.log().sum()
            gradients.append(q.div_(mass).sub_(p).to(projection.dtype) @ projection)
        ctx.save_for_backward(torch.cat(gradients).to(x.dtype))
        return total

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None, None]:
        (gradient,) = ctx.saved_tensors
        return gradient * grads[0].to(gradient.dtype), None, None, None


def divergence(x: Tensor, teacher: Tensor, projection: Tensor, *, rows: int = 64) -> Tensor:
    """Sum over N rows of KL(teacher || student). x, teacher [N, d] float32; projection [V, d], frozen.

    rows  at a time, which bounds memory: rows * V floats, a few times
    """
    total: Tensor = _Divergence.apply(x, teacher, projection, rows)
    return total
