"""Stage 2b, capture: hidden states for answers that are there already, by one teacher-forced pass each."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from medusakit.artifact.files import sha256_file
from medusakit.artifact.schema import Backbone
from medusakit.runtimes.base import Runtime
from medusakit.text.tokenizer import Tokenizer
from medusakit.train.answers import GivenAnswer, read_answers
from medusakit.train.dataset import ShardWriter
from medusakit.train.interrupt import deferred_interrupt
from medusakit.train.manifest import DatasetManifest
from medusakit.train.progress import Meter, OnProgress, ignore
from medusakit.train.shards import Sample
from medusakit.verify.history import common_prefix


def capture(
    runtime: Runtime,
    tokenizer: Tokenizer,
    answers: Path,
    out: Path,
    *,
    backbone: Backbone,
    shard_tokens: int = 16_384,
    on_progress: OnProgress = ignore,
) -> int:
    """Write the training set `out` for an answers file, continuing it if it is there. Returns its generated tokens.

    A prompt that is answered twice is kept once. Errors as in `distill`.
    """
    given = list(read_answers(answers, tokenizer))
    manifest = DatasetManifest(backbone=backbone, seed=0, settings={"answers_sha256": sha256_file(answers)})
    meter = Meter("capture", len(given), on_progress, unit="answers")
    with ShardWriter(out, manifest, shard_tokens=shard_tokens) as writer, deferred_interrupt() as pressed:
        row, context = runtime.add_row(), list[int]()
        try:
            for done, answer in enumerate(given, start=1):
                if (answer.group, answer.turn) not in writer.finished and _fits(answer, runtime):
                    context, sample = _states(runtime, row, context, answer)
                    writer.add(sample)
                meter.report(done, f"{writer.num_tokens:,} tokens")
                if pressed():
                    raise KeyboardInterrupt
        finally:
            runtime.drop_row(row)
        writer.flush()
        meter.finish(len(given), f"{writer.num_tokens:,} tokens of {writer.num_samples:,} answers")
        return writer.num_tokens


def _fits(answer: GivenAnswer, runtime: Runtime) -> bool:
    return len(answer.prompt_ids) + len(answer.gen_ids) <= runtime.capabilities.max_context


def _states(runtime: Runtime, row: int, context: list[int], answer: GivenAnswer) -> tuple[list[int], Sample]:
    """The row's new content, and the sample: states at positions P - 1 .. P + G - 2 of its ids."""
    ids = [*answer.prompt_ids, *answer.gen_ids]
    shared = common_prefix(context, answer.prompt_ids[:-1])
    runtime.truncate(row, shared)
    states = runtime.hidden_states(row, ids[shared:-1])
    hidden = states[len(answer.prompt_ids) - 1 - shared :].astype(np.float16)
    return ids[:-1], Sample(np.array(ids, np.int32), len(answer.prompt_ids), hidden, answer.group, answer.turn)
