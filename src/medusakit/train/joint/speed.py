"""Tokens per step of heads in real decoding: held-out prompts, greedy, one tree of fixed size."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from medusakit.llm import LLM
from medusakit.settings import SamplingParams
from medusakit.train.progress import Meter, OnProgress, ignore


@dataclass(frozen=True, slots=True)
class Decoded:
    """Per prompt: tokens after the first, and steps."""

    tokens: tuple[int, ...]
    steps: tuple[int, ...]

    @property
    def tau(self) -> float:
        return sum(self.tokens) / max(sum(self.steps), 1)


def decode(
    model: str,
    heads: Path,
    prompts: Sequence[Sequence[int]],
    *,
    family: str,
    budget: int,
    max_new_tokens: int,
    threads: int | None = None,
    offline: bool = False,
    stage: str = "decode",
    on_progress: OnProgress = ignore,
) -> Decoded:
    """Decode with the heads' calibrated tree of `budget` rows at every step (runtime onnx, float32)."""
    meter, tokens, steps = Meter(stage, len(prompts), on_progress, unit="prompts"), list[int](), list[int]()
    with LLM.load(model, heads=str(heads), weights="f32", drafter=family, budget=budget, dynamic_tree=False,
                  threads=threads, offline=offline) as llm:  # fmt: skip
        for prompt in prompts:
            with llm.stream_ids(prompt, SamplingParams(max_tokens=max_new_tokens)) as stream:
                for _ in stream:
                    pass
                stats = stream.result.stats
            tokens.append(max(stats.num_tokens - 1, 0))
            steps.append(stats.num_steps)
            meter.report(len(tokens))
    decoded = Decoded(tuple(tokens), tuple(steps))
    meter.finish(len(tokens), f"{decoded.tau:.3f} tokens a step")
    return decoded


def ratio(of: Decoded, beside: Decoded, *, seed: int = 0, resamples: int = 2000) -> tuple[float, float, float]:
    """tau of one over tau of the other on the same prompts, with its 95 % interval (bootstrap over prompts)."""
    counts = np.array([of.tokens, of.steps, beside.tokens, beside.steps], np.float64).T
    num = len(counts)
    draws = np.random.default_rng(seed).multinomial(num, np.full(num, 1 / num), resamples)
    sums = np.concatenate([np.ones((1, num)), draws]) @ counts
    ratios = (sums[:, 0] / sums[:, 1]) / (sums[:, 2] / sums[:, 3])
    low, high = np.percentile(ratios[1:], [2.5, 97.5])
    return float(ratios[0]), float(low), float(high)
