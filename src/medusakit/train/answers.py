"""Files of answers: what the model said to which prompt, without hidden states, so a hundred times smaller.

A line: {"prompt": text or token ids, "gen": token ids}, and for a later turn of a conversation
"opening": how many ids of `prompt` are the conversation's first prompt, "turn": which answer it is, from 0.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from medusakit.artifact.files import write_atomic
from medusakit.errors import DatasetError
from medusakit.text.chat import chat_ids
from medusakit.text.tokenizer import Tokenizer
from medusakit.train.dataset import Dataset
from medusakit.train.seeds import read_json_lines, read_seeds
from medusakit.train.shards import Sample, group_of
from medusakit.train.templates import Conversation


@dataclass(frozen=True, slots=True)
class GivenAnswer:
    """A prompt (chat template applied) and what the model answered, as token ids; `group` and `turn` as in shards."""

    prompt_ids: Sequence[int]
    gen_ids: Sequence[int]
    group: int
    turn: int


def read_answers(path: Path, tokenizer: Tokenizer) -> Iterator[GivenAnswer]:
    """The answers of a jsonl or jsonl.gz file. Raises DatasetError naming the line that is not one."""
    for number, entry in read_json_lines(path):
        prompt, gen = _prompt_ids(entry, tokenizer), entry.get("gen")
        if not prompt or not gen or not all(_is_id(token, tokenizer) for token in (*prompt, *gen)):
            raise DatasetError(
                f'{path}, line {number}: expected "prompt" and "gen" with token ids below {tokenizer.vocab_size}'
            )
        opening, turn = entry.get("opening", len(prompt)), entry.get("turn", 0)
        if not (_is_count(opening, 1, len(prompt)) and _is_count(turn, 0, 10_000)):
            raise DatasetError(
                f'{path}, line {number}: "opening" is {opening!r} and "turn" {turn!r}; expected a number of prompt '
                f"ids (1 to {len(prompt)}) and the number of a turn, from 0"
            )
        yield GivenAnswer(prompt, gen, group_of(prompt[:opening]), turn)


def write_answers(dataset: Dataset, seeds: Path, tokenizer: Tokenizer, out: Path) -> int:
    """The answers of a distilled set whose prompts are in `seeds`, as a jsonl.gz file. Returns how many.

    Conversations that are not among the seeds (answers to an older file) are left out.
    """
    origins = {
        group_of(chat_ids(tokenizer, [{"role": "user", "content": seed.turns[0]}])): seed for seed in read_seeds(seeds)
    }
    found = (sample for sample in dataset if sample.group in origins)
    samples = sorted(found, key=lambda sample: (sample.group, sample.turn))
    openings = {sample.group: sample.prompt_len for sample in samples if sample.turn == 0}
    lines = [_line(sample, openings[sample.group], origins[sample.group]) for sample in samples]
    write_atomic(out, gzip.compress("".join(lines).encode(), 9, mtime=0))
    return len(lines)


def _line(sample: Sample, opening: int, seed: Conversation) -> str:
    gen = sample.gen.tolist()
    if sample.turn == 0:
        entry: dict[str, Any] = {"prompt": seed.turns[0], "gen": gen}
    else:
        prompt = sample.ids[: sample.prompt_len].tolist()
        entry = {"prompt": prompt, "gen": gen, "opening": opening, "turn": sample.turn}
    entry |= {"source": seed.source, "license": seed.license}
    return json.dumps(entry, ensure_ascii=False, separators=(",", ":")) + "\n"


def _prompt_ids(entry: Mapping[str, Any], tokenizer: Tokenizer) -> list[int]:
    prompt = entry.get("prompt")
    if isinstance(prompt, str):
        ids: list[int] = chat_ids(tokenizer, [{"role": "user", "content": prompt}])
        return ids
    return [*prompt] if isinstance(prompt, list) else []


def _is_id(token: object, tokenizer: Tokenizer) -> bool:
    return isinstance(token, int) and 0 <= token < tokenizer.vocab_size


def _is_count(value: object, low: int, high: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and low <= value <= high
