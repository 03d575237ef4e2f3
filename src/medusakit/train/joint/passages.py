"""What a step of joint training reads: whole conversations, so that a prompt that repeats an answer is run once.

A passage is the ids of a conversation's last turn; the turns before it are its prefix, and every answer in it is
trained. Passages of like length make a batch, padded on the right: nothing before the padding sees it, so a causal
model needs no mask.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from medusakit.train.heads_data import Batch, make_batch
from medusakit.train.shards import Sample

_POOL = 64  # passages sorted by length together


@dataclass(frozen=True, slots=True)
class Passage:
    """ids [T] int32; answers: the samples whose ids begin it, in order."""

    ids: NDArray[np.int32]
    answers: tuple[Sample, ...]


@dataclass(frozen=True, slots=True)
class Step:
    """B passages padded to T, with A answers of at most G tokens.

    ids      [B, T] int64
    heads    the answers as the drafter's training reads them; its states are the teacher's
    places   [A, G] int64: where each row of `heads` stands among the B * T positions; 0 past an answer's end
    rows     [N] int64: places of all N rows that predict a token of an answer, answer by answer
    """

    ids: Tensor
    heads: Batch
    places: Tensor
    rows: Tensor

    def labels(self) -> Tensor:
        """[N] int64: the token that each of `rows` predicts."""
        tokens, inside = self.heads.tokens, self.inside()
        return torch.from_numpy(tokens[:, 1:])[inside]

    def teacher(self) -> Tensor:
        """[N, d] float32: the stored states of `rows`."""
        return torch.from_numpy(self.heads.hidden)[self.inside()].float()

    def inside(self) -> Tensor:
        """[A, G] bool: rows of an answer."""
        return torch.arange(self.places.shape[1])[None, :] < torch.from_numpy(self.heads.lengths)[:, None]


def passages_of(samples: Iterable[Sample]) -> list[Passage]:
    """Samples of one conversation become one passage where the earlier is a prefix of the later."""
    ordered = sorted(samples, key=lambda sample: (sample.group, sample.turn))
    found: list[Passage] = []
    for _, group in groupby(ordered, key=lambda sample: sample.group):
        begun: list[Sample] = []
        for sample in group:
            if begun and not _continues(begun[-1], sample):
                found.append(Passage(begun[-1].ids, tuple(begun)))
                begun = []
            begun.append(sample)
        found.append(Passage(begun[-1].ids, tuple(begun)))
    return found


def make_step(passages: Sequence[Passage]) -> Step:
    longest = max(len(passage.ids) for passage in passages)
    ids = np.zeros((len(passages), longest), np.int64)
    answers, starts = list[Sample](), list[int]()
    for row, passage in enumerate(passages):
        ids[row, : len(passage.ids)] = passage.ids
        answers.extend(passage.answers)
        starts.extend(row * longest + answer.prompt_len - 1 for answer in passage.answers)
    heads = make_batch(answers)
    columns = np.arange(heads.hidden.shape[1])[None, :]
    inside = columns < heads.lengths[:, None]
    places = np.where(inside, np.array(starts)[:, None] + columns, 0)
    return Step(torch.from_numpy(ids), heads, torch.from_numpy(places), torch.from_numpy(places[inside]))


def epoch_steps(lengths: Sequence[int], tokens: int, rng: np.random.Generator) -> list[list[int]]:
    """Indices of passages, once each, in random order; those of a step fill about `tokens` padded positions."""
    order = rng.permutation(len(lengths)).tolist()
    steps: list[list[int]] = []
    for start in range(0, len(order), _POOL):
        pool = sorted(order[start : start + _POOL], key=lambda index: lengths[index])
        steps.extend(_filled(pool, lengths, tokens))
    return [steps[index] for index in rng.permutation(len(steps)).tolist()]


def _filled(pool: Sequence[int], lengths: Sequence[int], tokens: int) -> Iterable[list[int]]:
    step: list[int] = []
    for index in pool:
        if step and (len(step) + 1) * lengths[index] > tokens:
            yield step
            step = []
        step.append(index)
    if step:
        yield step


def _continues(earlier: Sample, later: Sample) -> bool:
    length = len(earlier.ids)
    return later.prompt_len >= length and bool((later.ids[:length] == earlier.ids).all())
