"""Stage 2, distill: the model answers the seeds; answers and the hidden states of the same passes go to disk."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from medusakit.artifact.schema import Backbone
from medusakit.errors import DatasetError
from medusakit.runtimes.base import Runtime
from medusakit.text.tokenizer import Tokenizer
from medusakit.train.answering import Answer, AnswerBatch
from medusakit.train.dataset import ShardWriter
from medusakit.train.interrupt import deferred_interrupt
from medusakit.train.manifest import DatasetManifest
from medusakit.train.progress import Meter, OnProgress, ignore
from medusakit.train.shards import Sample
from medusakit.train.templates import Conversation


class DistillConfig(BaseModel):
    """How answers are made.

    rows            answers in progress at once
    max_new_tokens  an answer is cut there, as in use
    sampled_share   share of conversations answered at `temperature`; the others are greedy
    max_tokens      stop taking new prompts when the set has this many tokens; 0: answer all seeds
    shard_tokens    tokens of a shard: what a kill may lose
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    rows: int = Field(default=32, ge=1)
    max_new_tokens: int = Field(default=256, ge=1)
    max_prompt_tokens: int = Field(default=1024, ge=1)
    temperature: float = Field(default=0.7, gt=0)
    sampled_share: float = Field(default=0.15, ge=0, le=1)
    max_tokens: int = Field(default=0, ge=0)
    shard_tokens: int = Field(default=16_384, ge=1)
    seed: int = Field(default=0, ge=0)

    def settings(self) -> dict[str, object]:
        """What shapes the answers; rows, limits of amount and shard size do not."""
        return self.model_dump(exclude={"rows", "max_tokens", "shard_tokens", "seed"})


@dataclass(frozen=True, slots=True)
class DistillReport:
    """tokens: generated ones, of the whole set; the shares are of this run's answers."""

    num_samples: int
    num_tokens: int
    new_tokens: int
    cut_share: float
    skipped: int
    tokens_per_s: float


def expectation(num_tokens: int, cut_share: float, skipped: int) -> str:
    """What this amount of data is good for: 344k tokens instead of 131k were worth 10 % more tokens a step."""
    if num_tokens < 50_000:
        verdict = "enough to try the pipeline, too little for drafters worth serving (from about 100,000)"
    elif num_tokens < 300_000:
        verdict = "enough for useful drafters; three times as much is worth about 10 % more tokens a step"
    else:
        verdict = "enough for good drafters"
    parts = [f"{num_tokens:,} tokens: {verdict}"]
    if cut_share:
        parts.append(f"{cut_share:.0%} of the new answers reached the length limit")
    if skipped:
        parts.append(f"{skipped} prompts were too long")
    return "; ".join(parts)


def distill(
    runtime: Runtime,
    tokenizer: Tokenizer,
    seeds: Sequence[Conversation],
    out: Path,
    config: DistillConfig,
    *,
    backbone: Backbone,
    on_progress: OnProgress = ignore,
) -> DistillReport:
    """Answer `seeds` into the training set `out`, continuing it if it is there already.

    The first Ctrl-C saves the finished answers and goes on as KeyboardInterrupt. Raises RuntimeFailure on a full disk
    (finished shards stay), DatasetError if `out` was begun with another model or other settings.
    """
    manifest = DatasetManifest(backbone=backbone, seed=config.seed, settings=config.settings())
    with ShardWriter(out, manifest, shard_tokens=config.shard_tokens) as writer, deferred_interrupt() as pressed:
        run = _Run(writer, config, seeds, on_progress)
        batch = AnswerBatch(runtime, tokenizer, config)
        try:
            for ended in batch.run(run.remaining_seeds(), run.is_wanted):
                run.keep(ended, tokenizer.eos_ids)
                run.tell(batch.in_progress)
                if pressed():
                    raise KeyboardInterrupt
        finally:
            batch.close()
        writer.flush()
        return run.report(batch.skipped)


class _Run:
    """What this run has done so far, and what is left to do."""

    def __init__(
        self, writer: ShardWriter, config: DistillConfig, seeds: Sequence[Conversation], on_progress: OnProgress
    ) -> None:
        self._writer, self._config, self._seeds = writer, config, seeds
        self._first_tokens = writer.num_tokens
        self._ended = self._cut = 0
        total, unit = config.max_tokens, "tokens"
        if not total:
            total, unit = sum(len(seed.turns) for seed in seeds), "answers"
        self._meter = Meter("distill", total, on_progress, unit=unit)

    def remaining_seeds(self) -> Iterator[Conversation]:
        """Stops early when the set is large enough."""
        for seed in self._seeds:
            if self._config.max_tokens and self._writer.num_tokens >= self._config.max_tokens:
                return
            yield seed

    def is_wanted(self, seed: Conversation, group: int) -> bool:
        """A conversation that a kill cut short is answered from its beginning, but kept once."""
        return (group, len(seed.turns) - 1) not in self._writer.finished

    def keep(self, ended: Sequence[Sample], eos_ids: frozenset[int]) -> None:
        for sample in ended:
            self._ended += 1
            self._cut += int(sample.gen[-1]) not in eos_ids
            if (sample.group, sample.turn) not in self._writer.finished:
                self._writer.add(sample)

    def tell(self, in_progress: Sequence[Answer]) -> None:
        """Report, tokens of answers that are still being made included."""
        wanted = (answer for answer in in_progress if (answer.group, answer.turn) not in self._writer.finished)
        begun = sum(len(answer.gen) for answer in wanted)
        done = self._writer.num_tokens + begun if self._config.max_tokens else self._writer.num_samples
        note = f"{self._writer.num_samples:,} answers, {self._tokens_per_s(begun):.0f} tokens/s"
        if 0 < self._config.max_tokens <= done:
            note += f"; enough: {len(in_progress)} that were begun are finished"
        self._meter.report(done, note)

    def report(self, skipped: int) -> DistillReport:
        tokens, cut = self._writer.num_tokens, self._cut / self._ended if self._ended else 0.0
        if tokens == 0:
            raise DatasetError("the model answered none of the seeds", hint="check the prompts: medusa train seeds")
        done = tokens if self._config.max_tokens else self._writer.num_samples
        self._meter.finish(done, expectation(tokens, cut, skipped))
        new = tokens - self._first_tokens
        return DistillReport(self._writer.num_samples, tokens, new, cut, skipped, self._tokens_per_s())

    def _tokens_per_s(self, begun: int = 0) -> float:
        """Of this run; `begun`: tokens of answers that have not ended."""
        return (self._writer.num_tokens + begun - self._first_tokens) / max(self._meter.elapsed_s, 1e-9)
