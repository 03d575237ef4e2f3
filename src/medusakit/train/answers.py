"""Files of answers: what the model said to which prompts, without hidden states, so a hundred times smaller.

A line is one conversation:  {"turns": [the user's texts], "gens": [token ids of each answer]},
or a single answer:          {"prompt": text or token ids, "gen": token ids}.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Any

from medusakit.artifact.files import write_atomic
from medusakit.errors import DatasetError
from medusakit.text.chat import conversation_ids
from medusakit.text.tokenizer import Tokenizer
from medusakit.train.dataset import Dataset
from medusakit.train.seeds import read_json_lines, read_seeds
from medusakit.train.shards import group_of
from medusakit.train.templates import Conversation


@dataclass(frozen=True, slots=True)
class GivenAnswer:
    """A prompt (chat template applied) and what the model answered, as token ids; `group` and `turn` as in shards."""

    prompt_ids: Sequence[int]
    gen_ids: Sequence[int]
    group: int
    turn: int


def read_answers(path: Path, tokenizer: Tokenizer) -> Iterator[GivenAnswer]:
    """The answers of a jsonl or jsonl.gz file. Raises DatasetError naming the line that holds none."""
    for number, entry in read_json_lines(path):
        if "turns" in entry:
            yield from _conversation(f"{path}, line {number}", entry, tokenizer)
        else:
            prompt, gen = _prompt_ids(entry, tokenizer), entry.get("gen", [])
            if not (_are_ids(prompt, tokenizer) and _are_ids(gen, tokenizer)):
                raise DatasetError(
                    f'{path}, line {number}: expected "prompt" and "gen" with token ids below {tokenizer.vocab_size}'
                )
            yield GivenAnswer(prompt, gen, group_of(prompt), 0)


def write_answers(dataset: Dataset, seeds: Path, tokenizer: Tokenizer, out: Path) -> int:
    """The answers of a distilled set whose prompts are in `seeds`, as a jsonl.gz file. Returns how many conversations.

    Conversations that are not among the seeds (answers to an older file) are left out.
    """
    asked = {group_of(conversation_ids(tokenizer, seed.turns[:1], [])): seed for seed in read_seeds(seeds)}
    said: dict[int, dict[int, list[int]]] = {}
    for sample in dataset:
        if sample.group in asked:
            said.setdefault(sample.group, {})[sample.turn] = sample.gen.tolist()
    lines = [_line(asked[group], gens) for group, gens in sorted(said.items()) if 0 in gens]
    write_atomic(out, gzip.compress("".join(lines).encode(), 9, mtime=0))
    return len(lines)


def _line(seed: Conversation, said: Mapping[int, Sequence[int]]) -> str:
    gens = list(takewhile(bool, (said.get(turn, ()) for turn in range(len(seed.turns)))))
    entry = {"turns": seed.turns[: len(gens)], "gens": gens, "source": seed.source, "license": seed.license}
    return json.dumps(entry, ensure_ascii=False, separators=(",", ":")) + "\n"


def _conversation(where: str, entry: Mapping[str, Any], tokenizer: Tokenizer) -> Iterator[GivenAnswer]:
    turns, gens = entry["turns"], entry.get("gens")
    if not (isinstance(turns, list) and all(isinstance(turn, str) for turn in turns) and isinstance(gens, list)):
        raise DatasetError(f'{where}: expected "turns", a list of texts, and "gens", a list of token id lists')
    if not (1 <= len(turns) == len(gens) and all(_are_ids(gen, tokenizer) for gen in gens)):
        raise DatasetError(
            f"{where}: {len(turns)} turns and {len(gens)} answers; expected an answer of token ids below "
            f"{tokenizer.vocab_size} for every turn"
        )
    prompts = [conversation_ids(tokenizer, turns[: k + 1], gens[:k]) for k in range(len(turns))]
    for turn, (prompt, gen) in enumerate(zip(prompts, gens, strict=True)):
        yield GivenAnswer(prompt, gen, group_of(prompts[0]), turn)


def _prompt_ids(entry: Mapping[str, Any], tokenizer: Tokenizer) -> list[int]:
    prompt = entry.get("prompt")
    if isinstance(prompt, str):
        return conversation_ids(tokenizer, [prompt], [])
    return [*prompt] if isinstance(prompt, list) else []


def _are_ids(ids: object, tokenizer: Tokenizer) -> bool:
    """A list of at least one token id."""
    return (
        isinstance(ids, list)
        and bool(ids)
        and all(
            isinstance(token, int) and not isinstance(token, bool) and 0 <= token < tokenizer.vocab_size
            for token in ids
        )
    )
