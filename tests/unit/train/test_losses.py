"""The fused loss equals plain autograd, and gradients go only where they should."""

from __future__ import annotations

import pytest
import torch

from medusakit.train.losses import Targets, hard_targets, soft_targets, sparse_cross_entropy


def plain_loss(x: torch.Tensor, rows: torch.Tensor, targets: Targets, weights: torch.Tensor) -> torch.Tensor:
    """The definition, with a dense target distribution."""
    dense = torch.zeros(len(x), len(rows)).scatter_add(1, targets.ids, targets.probs)
    return -(weights[:, None] * dense * torch.log_softmax(x @ rows.T, -1)).sum()


@pytest.fixture
def case() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """x [6, 8], frozen rows [20, 8], labels [6], weights [6]."""
    torch.manual_seed(0)
    return torch.randn(6, 8), torch.randn(20, 8), torch.randint(20, (6,)), torch.rand(6)


@pytest.mark.parametrize("hard", [1.0, 0.5, 0.0])
def test_fused_loss_and_gradient_equal_autograd(case: tuple[torch.Tensor, ...], hard: float) -> None:
    x, rows, labels, weights = case
    targets = soft_targets(torch.randn(6, 8), rows, labels, hard=hard, top=5)
    mine, reference = x.clone().requires_grad_(), x.clone().requires_grad_()
    loss, likely = sparse_cross_entropy(mine, rows, targets, weights)
    expected = plain_loss(reference, rows, targets, weights)
    assert loss.item() == pytest.approx(expected.item(), rel=1e-5)
    (3.0 * loss).backward()
    (3.0 * expected).backward()
    torch.testing.assert_close(mine.grad, reference.grad, rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(likely, torch.softmax(x @ rows.T, -1).gather(1, labels[:, None])[:, 0])


def test_a_trained_projection_gets_its_gradient(case: tuple[torch.Tensor, ...]) -> None:
    x, rows, labels, weights = case
    own, reference = rows.clone().requires_grad_(), rows.clone().requires_grad_()
    sparse_cross_entropy(x, own, hard_targets(labels), weights)[0].backward()
    plain_loss(x, reference, hard_targets(labels), weights).backward()
    torch.testing.assert_close(own.grad, reference.grad, rtol=1e-4, atol=1e-6)


def test_soft_targets_are_the_backbones_distribution_and_the_label(case: tuple[torch.Tensor, ...]) -> None:
    _, rows, labels, _ = case
    hidden = torch.randn(6, 8)
    targets = soft_targets(hidden, rows, labels, hard=0.25, top=20)
    dense = torch.zeros(6, 20).scatter_add(1, targets.ids, targets.probs)
    expected = 0.75 * torch.softmax(hidden @ rows.T, -1)
    expected[torch.arange(6), labels] += 0.25
    torch.testing.assert_close(dense, expected)
    assert torch.equal(targets.ids[:, 0], labels)
    torch.testing.assert_close(targets.probs.sum(1), torch.ones(6))


def test_no_rows_cost_nothing() -> None:
    x = torch.zeros(0, 8, requires_grad=True)
    loss, likely = sparse_cross_entropy(x, torch.randn(20, 8), hard_targets(torch.zeros(0, dtype=torch.long)), x[:, 0])
    assert loss.item() == 0.0
    assert likely.shape == (0,)
