"""Stage 1, seeds: the conversations that the model will answer, from templates and files, none of a benchmark."""

from __future__ import annotations

import gzip
import json
import random
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from medusakit.artifact.files import make_folder, write_atomic
from medusakit.errors import DatasetError
from medusakit.train.leakage import BenchmarkTexts, spec_bench_texts
from medusakit.train.templates import Conversation, PromptTemplates, load_templates

_CATEGORY_OF_SOURCE = {"gsm8k-train": "math", "templates/code": "coding"}


class SeedConfig(BaseModel):
    """What to ask the model.

    templates    conversations drawn from the package's own templates
    files        further prompts: jsonl or jsonl.gz, `{"prompt" or "turns", "source", "license"}` a line
    answered     jsonl(.gz) files of prompts that are answered already (stage capture): not asked again
    turn_shares  share of conversations that have a second, third, ... turn
    max_chars    longer prompts are left out (prefill costs as much as generating)
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    templates: int = Field(default=6000, ge=0)
    files: tuple[str, ...] = ()
    answered: tuple[str, ...] = ()
    turn_shares: tuple[float, ...] = (0.6, 0.1)
    max_chars: int = Field(default=1500, ge=1)
    seed: int = Field(default=0, ge=0)


@dataclass(frozen=True, slots=True)
class SeedReport:
    """num by category; dropped by reason (leaked, repeated or answered, long); licences by source."""

    num: int
    by_category: dict[str, int]
    dropped: dict[str, int]
    licenses: dict[str, str]


def make_seeds(config: SeedConfig, out: Path, *, forbidden: BenchmarkTexts | None = None) -> SeedReport:
    """Write `out` (jsonl), in random order, so that any part is representative. Raises DatasetError on bad files."""
    forbidden = spec_bench_texts() if forbidden is None else forbidden
    templates = load_templates()
    candidates = [
        *templates.conversations(config.templates, turn_shares=config.turn_shares, seed=config.seed),
        *_from_files(config, templates),
    ]
    dropped: Counter[str] = Counter()
    kept = list(filtered(candidates, config, forbidden, dropped))
    if not kept:
        raise DatasetError(
            "no prompt is left to distil from", hint="in [seeds] of the recipe: a larger templates, or more files"
        )
    random.Random(f"order-{config.seed}").shuffle(kept)
    make_folder(out.parent)
    write_atomic(out, "".join(json.dumps(asdict(seed), ensure_ascii=False) + "\n" for seed in kept).encode())
    return SeedReport(
        len(kept),
        dict(Counter(seed.category for seed in kept)),
        dict(dropped),
        {seed.source: seed.license for seed in kept},
    )


def read_seeds(path: Path) -> list[Conversation]:
    """Conversations of a file that `make_seeds` or a person wrote. Raises DatasetError naming file and line."""
    return [_conversation(path, number, entry) for number, entry in read_json_lines(path)]


def read_json_lines(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """(line number, object) of a jsonl or jsonl.gz file. Raises DatasetError naming file and line."""
    try:
        data = path.read_bytes()
        text = (gzip.decompress(data) if path.suffix == ".gz" else data).decode("utf-8")
    except (OSError, EOFError, UnicodeDecodeError) as cause:
        raise DatasetError(f"{path} cannot be read: {cause}") from cause
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            try:
                entry = json.loads(line)
            except ValueError as cause:
                raise DatasetError(f"{path}, line {number}: not JSON ({cause})") from cause
            if not isinstance(entry, dict):
                raise DatasetError(f"{path}, line {number}: expected an object, found {line[:40]}")
            yield number, entry


def _conversation(path: Path, number: int, entry: dict[str, Any]) -> Conversation:
    turns = entry.get("turns") or [entry.get("prompt")]
    if not all(isinstance(turn, str) and turn.strip() for turn in turns):
        raise DatasetError(f'{path}, line {number}: expected a non-empty "prompt" or "turns"')
    source = str(entry.get("source", path.name))
    category = str(entry.get("category") or _CATEGORY_OF_SOURCE.get(source, "general"))
    return Conversation(tuple(turns), source, str(entry.get("license", "unknown")), category)


def _from_files(config: SeedConfig, templates: PromptTemplates) -> Iterator[Conversation]:
    """Single prompts of a file get follow-up questions in the same shares as the templates."""
    rng = random.Random(f"files-{config.seed}")
    for name in config.files:
        for seed in read_seeds(Path(name)):
            more = templates.follow_ups(seed.category, config.turn_shares, rng) if len(seed.turns) == 1 else []
            yield Conversation((*seed.turns, *more), seed.source, seed.license, seed.category)


def filtered(
    candidates: Iterable[Conversation], config: SeedConfig, forbidden: BenchmarkTexts, dropped: Counter[str]
) -> Iterator[Conversation]:
    """Those that are new, short enough and of no benchmark; `dropped` counts the others by reason."""
    seen = set(_openings(config.answered))
    for seed in candidates:
        reason = _reason(seed, config, forbidden, seen)
        if reason is None:
            seen.add(seed.turns[0].strip())
            yield seed
        else:
            dropped[reason] += 1


def _reason(seed: Conversation, config: SeedConfig, forbidden: BenchmarkTexts, seen: set[str]) -> str | None:
    if seed.turns[0].strip() in seen:
        return "repeated or answered"
    if len(seed.turns[0]) > config.max_chars:
        return "long"
    return "leaked" if any(forbidden.leak(turn) for turn in seed.turns) else None


def _openings(files: Sequence[str]) -> Iterator[str]:
    """First prompts of files of answers (answers.py)."""
    for name in files:
        for _, entry in read_json_lines(Path(name)):
            if isinstance(prompt := entry.get("prompt") or entry.get("turns", [None])[0], str):
                yield prompt.strip()
