"""How likely a model finds answers, and what it would say itself, token by token: perplexity and agreement."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from medusakit.train.joint.passages import epoch_steps, make_step, passages_of
from medusakit.train.progress import Meter, OnProgress, ignore
from medusakit.train.shards import Sample
from medusakit.tree.topology import FloatArray

RESAMPLES = 2000
_PIECE = 64  # rows of the full vocabulary at a time
_TOKENS = 1024


@dataclass(frozen=True, slots=True)
class Scores:
    """Of A answers with N tokens in all, in the order of (conversation, turn).

    groups  [A] the conversation of each answer; tokens: [A] its length
    nll     [A] float64: -log p of the whole answer, in nats
    best    [N] the model's own choice at every place
    """

    groups: NDArray[np.int64]
    tokens: NDArray[np.int64]
    nll: NDArray[np.float64]
    best: NDArray[np.int64]

    @property
    def perplexity(self) -> float:
        return float(np.exp(self.nll.sum() / self.tokens.sum()))

    def agreement(self, other: Scores) -> float:
        """Share of places where both choose the same token."""
        return float((self.best == other.best).mean())


@dataclass(frozen=True, slots=True)
class Change:
    """A perplexity beside another's, in per cent of it, with the 95 % interval over conversations."""

    percent: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Told:
    """What one pass over answers gives: their scores, and the states that predict each of their tokens."""

    scores: Scores
    samples: tuple[Sample, ...]


def tell(
    hidden_of: Callable[[Tensor], Tensor],
    projection: Tensor,
    samples: Sequence[Sample],
    *,
    stage: str = "score",
    on_progress: OnProgress = ignore,
) -> Told:
    """Run a model along answers, in its own format.

    hidden_of   ids [B, T] to states [B, T, d]; projection [V, d] of its LM head
    """
    passages = passages_of(samples)
    lengths = [len(passage.ids) for passage in passages]
    meter = Meter(stage, sum(len(passage.answers) for passage in passages), on_progress, unit="answers")
    found: list[tuple[Sample, float, NDArray[np.int64]]] = []
    for indices in epoch_steps(lengths, _TOKENS, np.random.default_rng(0)):
        step = make_step([passages[index] for index in indices])
        with torch.no_grad():
            states = hidden_of(step.ids.to(projection.device)).flatten(0, 1)[step.rows.to(projection.device)]
            nll, best = _of_rows(states, projection, step.labels().to(projection.device))
        answers = [answer for index in indices for answer in passages[index].answers]
        cuts = np.cumsum([answer.num_generated for answer in answers])[:-1]
        parts = zip(answers, np.split(nll, cuts), np.split(best, cuts), np.split(states.float().cpu().numpy(), cuts),
                    strict=True)  # fmt: skip
        found += [(_with_states(answer, own), float(part.sum()), said) for answer, part, said, own in parts]
        meter.report(len(found))
    found.sort(key=lambda entry: (entry[0].group, entry[0].turn))
    told = tuple(entry[0] for entry in found)
    scores = Scores(
        np.array([sample.group for sample in told], np.int64),
        np.array([sample.num_generated for sample in told], np.int64),
        np.array([entry[1] for entry in found]),
        np.concatenate([entry[2] for entry in found]),
    )
    meter.finish(len(found), f"perplexity {scores.perplexity:.3f} over {int(scores.tokens.sum()):,} tokens")
    return Told(scores, told)


def change(of: Scores, beside: Scores, *, seed: int = 0) -> Change:
    """The change of perplexity from `beside` to `of`, which scored the same answers. Percentile bootstrap over
    conversations, the same draws for whoever passes the same answers and seed."""
    return _summary(_changes(of, beside, seed))


def difference(of: Scores, than: Scores, beside: Scores, *, seed: int = 0) -> Change:
    """Points of per cent by which the change of `of` lies above that of `than`, both beside the same scores."""
    return _summary(_changes(of, beside, seed) - _changes(than, beside, seed))


def _changes(of: Scores, beside: Scores, seed: int) -> FloatArray:
    """Per cent: of all answers, then of RESAMPLES draws of conversations."""
    _, place = np.unique(of.groups, return_inverse=True)
    num = int(place.max()) + 1
    nll, tokens = np.zeros(num), np.zeros(num)
    np.add.at(nll, place, of.nll - beside.nll)
    np.add.at(tokens, place, of.tokens)
    draws = np.random.default_rng(seed).multinomial(num, np.full(num, 1 / num), RESAMPLES)
    weights = np.concatenate([np.ones((1, num)), draws])
    changes: FloatArray = 100 * np.expm1((weights @ nll) / (weights @ tokens))
    return changes


def _summary(changes: FloatArray) -> Change:
    low, high = np.percentile(changes[1:], [2.5, 97.5])
    return Change(round(float(changes[0]), 3), round(float(low), 3), round(float(high), 3))


def _of_rows(states: Tensor, projection: Tensor, labels: Tensor) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """(-log p of each label, best id) of N rows."""
    nll, best = [], []
    for piece, label in zip(states.split(_PIECE), labels.split(_PIECE), strict=True):
        scores = (piece.to(projection.dtype) @ projection.T).float()
        nll.append(torch.nn.functional.cross_entropy(scores, label, reduction="none"))
        best.append(scores.argmax(-1))
    return torch.cat(nll).cpu().numpy().astype(np.float64), torch.cat(best).cpu().numpy()


def _with_states(sample: Sample, states: NDArray[np.float32]) -> Sample:
    return Sample(sample.ids, sample.prompt_len, states.astype(np.float16), sample.group, sample.turn)
