"""Seeds that the model draws itself: given the chat template up to where a user's words begin, it writes such words.

The way of Magpie (Xu et al., 2406.08464). What comes out is what the model was tuned on, so heads learn its own ground;
repeats, benchmark questions and long texts are left out as among all seeds.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from medusakit.artifact.files import make_folder, write_atomic
from medusakit.errors import DatasetError, TokenizerError
from medusakit.text.chat import render_chat
from medusakit.text.tokenizer import Tokenizer
from medusakit.train.endpoint import Said
from medusakit.train.leakage import BenchmarkTexts, spec_bench_texts
from medusakit.train.progress import Meter, OnProgress, ignore
from medusakit.train.seeds import SeedConfig, filtered, read_seeds
from medusakit.train.templates import Conversation

TRIES = 4  # texts drawn for each that is wanted: some repeat, some are cut
MIN_CHARS = 12
Write = Callable[[int], Said]


def user_header(tokenizer: Tokenizer) -> list[int]:
    """Token ids of the template up to where a user's words begin. Raises TokenizerError without a chat template."""
    mark = "0words0"
    text = render_chat(tokenizer, [{"role": "user", "content": mark}], add_generation_prompt=False)
    before, found, _ = text.partition(mark)
    if not found:
        raise TokenizerError("the model's chat template does not show what a user says", hint="seeds from a file")
    ids: list[int] = []
    for part in tokenizer.control.split(before):
        ids += [part] if isinstance(part, int) else tokenizer.encode(part)
    return ids


def draw_seeds(
    write: Write,
    name: str,
    count: int,
    out: Path,
    *,
    license: str = "unknown",
    max_chars: int = 1500,
    concurrency: int = 1,
    forbidden: BenchmarkTexts | None = None,
    on_progress: OnProgress = ignore,
) -> Counter[str]:
    """Write a file of up to `count` prompts, after those that it holds. Returns what was left out, by reason.

    write    number -> what the model writes after the user's header, sampled with that seed; from several threads if
             concurrency > 1
    name     of the model, as the seeds' source
    Raises DatasetError if nothing usable came.
    """
    forbidden = spec_bench_texts() if forbidden is None else forbidden
    kept = read_seeds(out) if out.exists() else []
    dropped: Counter[str] = Counter()
    config = SeedConfig(max_chars=max_chars)
    meter = Meter("draw", count, on_progress, unit="prompts")
    texts = _texts(write, len(kept), TRIES * count, concurrency)
    drawn = (Conversation((text,), f"drawn from {name}", license) for text in _whole(texts, dropped))
    known = {seed.turns[0].strip() for seed in kept}
    make_folder(out.parent)
    for seed in filtered(drawn, config, forbidden, dropped) if len(kept) < count else ():
        if seed.turns[0] in known:
            dropped["repeated or answered"] += 1
            continue
        kept.append(seed)
        meter.report(len(kept))
        if len(kept) % 64 == 0:
            _save(kept, out)
        if len(kept) >= count:
            break
    if not kept:
        raise DatasetError(f"{name} wrote no usable prompt: {dict(dropped)}", hint="seeds from templates or a file")
    _save(kept, out)
    meter.finish(len(kept), f"{len(kept):,} prompts; left out: {dict(dropped) or 'none'}")
    return dropped


def _texts(write: Write, first: int, tries: int, concurrency: int) -> Iterator[Said]:
    """In order of their seeds, a few rounds at a time, so that an early end asks for little more."""
    with ThreadPoolExecutor(concurrency) as pool:
        for start in range(first, first + tries, concurrency):
            yield from pool.map(write, range(start, start + concurrency))


def _whole(texts: Iterable[Said], dropped: Counter[str]) -> Iterator[str]:
    """Texts that the model ended by itself and that say something."""
    for said in texts:
        text = said.text.strip()
        if not said.ended:
            dropped["cut"] += 1
        elif len(text) < MIN_CHARS:
            dropped["short"] += 1
        else:
            yield text


def _save(seeds: Iterable[Conversation], out: Path) -> None:
    lines = ({"prompt": seed.turns[0], "source": seed.source, "license": seed.license} for seed in seeds)
    write_atomic(out, "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines).encode())
