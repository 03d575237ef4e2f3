"""No prompt of a benchmark may enter training or calibration: exact and near-duplicate check on word n-grams."""

from __future__ import annotations

import gzip
import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from importlib import resources
from importlib.resources.abc import Traversable

from medusakit.errors import DatasetError

_RUN = 13  # a run of this many equal words is a copied passage
_GRAM = 3
_CONTAINED = 0.6  # share of a benchmark text's 3-grams that makes a near-duplicate
_SHORT = _GRAM + 4  # shorter texts ("What about |x + 10| < 5") are compared as a whole

Gram = tuple[str, ...]


def words_of(text: str) -> list[str]:
    """Lower-case words and numbers, punctuation and spacing gone."""
    return re.findall(r"\w+", text.lower())


def _grams(words: Sequence[str], size: int) -> set[Gram]:
    return {tuple(words[i : i + size]) for i in range(len(words) - size + 1)}


class BenchmarkTexts:
    """Texts that must not be trained on. `leak(text)` names the one that `text` repeats, or is None."""

    def __init__(self, texts: Iterable[str]) -> None:
        self._whole: dict[Gram, str] = {}
        self._runs: dict[Gram, str] = {}
        self._sizes: dict[str, int] = {}
        self._holders: dict[Gram, list[str]] = defaultdict(list)
        for text in texts:
            self._add(text)

    def _add(self, text: str) -> None:
        words = words_of(text)
        self._whole[tuple(words)] = text
        self._runs.update(dict.fromkeys(_grams(words, _RUN), text))
        if len(words) >= _SHORT and text not in self._sizes:
            grams = _grams(words, _GRAM)
            self._sizes[text] = len(grams)
            for gram in grams:
                self._holders[gram].append(text)

    def leak(self, text: str) -> str | None:
        words = words_of(text)
        if (whole := self._whole.get(tuple(words))) is not None:
            return whole
        if copied := next((self._runs[gram] for gram in _grams(words, _RUN) if gram in self._runs), None):
            return copied
        shared = Counter(holder for gram in _grams(words, _GRAM) for holder in self._holders.get(gram, ()))
        return next((held for held, count in shared.items() if count >= _CONTAINED * self._sizes[held]), None)


def spec_bench_texts() -> BenchmarkTexts:
    """Every turn of every question of the benchmark that the package carries."""
    file = _spec_bench_file()
    data = file.read_bytes()
    lines = (gzip.decompress(data) if file.name.endswith(".gz") else data).decode("utf-8").splitlines()
    return BenchmarkTexts(turn for line in lines if line.strip() for turn in json.loads(line)["turns"])


def _spec_bench_file() -> Traversable:
    folder = resources.files("medusakit") / "data"
    for name in ("spec-bench.jsonl", "spec-bench.jsonl.gz"):
        if (folder / name).is_file():
            return folder / name
    raise DatasetError(
        f"{folder}/spec-bench.jsonl is missing, so training prompts cannot be checked against it",
        hint="install medusakit again",
    )
