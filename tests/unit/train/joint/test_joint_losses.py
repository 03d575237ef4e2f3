"""The backbone's loss, the rates, the ramp, and what a step reads."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.nn import functional

from medusakit.train.joint.config import JointConfig
from medusakit.train.joint.passages import epoch_steps, make_step, passages_of
from medusakit.train.joint.trainer import backbone_rate, heads_weight
from medusakit.train.losses import divergence
from medusakit.train.shards import Sample


@pytest.mark.parametrize("rows", [3, 64])
def test_the_divergence_and_its_gradient_are_those_of_torch(rows: int) -> None:
    torch.manual_seed(0)
    projection, teacher = torch.randn(50, 8), torch.randn(10, 8)
    student = (teacher + 0.3 * torch.randn(10, 8)).requires_grad_()
    loss = divergence(student, teacher, projection, rows=rows)
    (gradient,) = torch.autograd.grad(loss, student)
    log_q, log_p = (torch.log_softmax(states @ projection.T, -1) for states in (student, teacher))
    wanted = functional.kl_div(log_q, log_p, log_target=True, reduction="sum")
    (wanted_gradient,) = torch.autograd.grad(wanted, student)
    torch.testing.assert_close(loss, wanted.detach())
    torch.testing.assert_close(gradient, wanted_gradient)


def test_a_short_format_sees_small_changes() -> None:
    """Two rounded products would differ by far more than the states do."""
    torch.manual_seed(0)
    projection, teacher = torch.randn(200, 64).bfloat16(), torch.randn(20, 64)
    assert float(divergence(teacher, teacher, projection)) == pytest.approx(0.0, abs=1e-6)
    student = (teacher + 1e-3 * torch.randn(20, 64)).requires_grad_()
    wide = student.detach().clone().requires_grad_()
    loss = divergence(student, teacher, projection)
    exact = divergence(wide, teacher, projection.float())
    assert loss.item() == pytest.approx(exact.item(), rel=0.2)
    (gradient,), (wanted,) = torch.autograd.grad(loss, student), torch.autograd.grad(exact, wide)
    assert float(functional.cosine_similarity(gradient.flatten(), wanted.flatten(), dim=0)) > 0.9


def test_rates_warm_up_and_fall() -> None:
    config = JointConfig(learning_rate=1.0, warmup_steps=10, final_rate=0.1)
    rates = [backbone_rate(config, step, 100) for step in range(100)]
    assert rates[0] == pytest.approx(0.1) and rates[:10] == sorted(rates[:10]) and 0.95 < max(rates) <= 1.0
    assert rates[12:] == sorted(rates[12:], reverse=True) and rates[-1] == pytest.approx(0.1, abs=0.01)
    assert backbone_rate(config.naive(), 0, 100) == pytest.approx(4.0), "no warm-up, the heads' rate"
    assert config.naive().head_rate == 1.0


def test_the_ramp_is_a_quarter_of_a_sine() -> None:
    config = JointConfig(lambda0=0.01)
    assert [round(heads_weight(config, step, 90), 6) for step in (0, 30, 90)] == [0.0, 0.005, 0.01]
    assert heads_weight(JointConfig(objective="data"), 0, 90) == 0.2, "constant on data"
    assert JointConfig().heads_weight == 0.01


def sample(group: int, turn: int, ids: list[int], prompt: int) -> Sample:
    hidden = np.full((len(ids) - prompt, 2), 10 * group + turn, np.float16)
    return Sample(np.array(ids, np.int32), prompt, hidden, group, turn)


def test_a_conversation_is_one_passage_and_every_answer_keeps_its_places() -> None:
    first, second = sample(1, 0, [5, 6, 7, 8], 2), sample(1, 1, [5, 6, 7, 8, 9, 4, 3], 5)
    other, alone = sample(2, 0, [5, 6, 7], 1), sample(2, 1, [9, 9, 9], 2)  # its prompt does not repeat the answer
    passages = passages_of([second, alone, first, other])
    assert [[answer.turn for answer in passage.answers] for passage in passages] == [[0, 1], [0], [1]]
    step = make_step(passages[:2])
    assert step.ids.tolist() == [[5, 6, 7, 8, 9, 4, 3], [5, 6, 7, 0, 0, 0, 0]]
    assert step.rows.tolist() == [1, 2, 4, 5, 7, 8]
    assert step.labels().tolist() == [7, 8, 4, 3, 6, 7]
    assert step.ids.flatten()[step.rows + 1].tolist() == step.labels().tolist()
    assert step.teacher()[:, 0].tolist() == [10, 10, 11, 11, 20, 20]


def test_every_passage_is_in_one_step_of_the_wanted_size() -> None:
    lengths = np.random.default_rng(0).integers(3, 60, 150).tolist()
    steps = epoch_steps(lengths, 100, np.random.default_rng(1))
    assert sorted(index for step in steps for index in step) == list(range(150))
    assert all(len(step) * max(lengths[index] for index in step) <= 100 for step in steps)
