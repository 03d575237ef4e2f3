"""Prompts from templates of our own (data/prompts.toml): deterministic for a seed, as many as are asked for."""

from __future__ import annotations

import random
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any

SOURCE, LICENSE = "medusakit templates", "Apache-2.0"
_SLOT = re.compile(r"\{([a-z]+)(\d*)(?::(\d+)-(\d+))?\}")


@dataclass(frozen=True, slots=True)
class Conversation:
    """What a user says, turn by turn; the model's answers stand between. `category` is a kind of task."""

    turns: tuple[str, ...]
    source: str
    license: str
    category: str = "general"


@dataclass(frozen=True, slots=True)
class PromptTemplates:
    """The file's content: word lists, follow-up questions by category, (category, weight, text) by template."""

    lists: Mapping[str, Sequence[str]]
    follow: Mapping[str, Sequence[str]]
    texts: Sequence[tuple[str, float, str]]

    def conversations(self, count: int, *, turn_shares: Sequence[float], seed: int) -> Iterator[Conversation]:
        """`count` different conversations.

        turn_shares  share of conversations that go on to turn 2, 3, ..., e.g. (0.5, 0.1)
        """
        rng = random.Random(f"templates-{seed}")
        seen: set[str] = set()
        weights = [weight for _, weight, _ in self.texts]
        for _ in range(count * 20):
            if len(seen) == count:
                return
            category, _, text = rng.choices(self.texts, weights)[0]
            opening = fill(text, self.lists, rng)
            if opening not in seen:
                seen.add(opening)
                turns = (opening, *self.follow_ups(category, turn_shares, rng))
                yield Conversation(turns, SOURCE, LICENSE, category)

    def follow_ups(self, category: str, turn_shares: Sequence[float], rng: random.Random) -> list[str]:
        """Further turns of a conversation of this category: turn i + 2 with probability turn_shares[i] of all."""
        chance = rng.random()
        num = sum(chance < share for share in turn_shares)
        pool = [*self.follow.get(category, ()), *self.follow["general"]]
        return [fill(text, self.lists, rng) for text in rng.sample(pool, num)]


def load_templates() -> PromptTemplates:
    content = tomllib.loads((resources.files("medusakit") / "data" / "prompts.toml").read_text(encoding="utf-8"))
    return PromptTemplates(content["lists"], content["follow"], list(_weighted(content["template"])))


def _weighted(entries: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, float, str]]:
    """A block's weight is that of the whole block: more wordings of a kind of task do not make it more frequent."""
    for entry in entries:
        for text in entry["texts"]:
            yield entry["category"], entry.get("weight", 1) / len(entry["texts"]), text


def fill(text: str, lists: Mapping[str, Sequence[str]], rng: random.Random) -> str:
    """Replace the slots, also those inside what was filled in. Numbered slots of one list get different values."""
    values: dict[str, str] = {}
    used: dict[str, list[str]] = {}

    def value(match: re.Match[str]) -> str:
        name, number, low, high = match.groups()
        key = name + number
        if key not in values:
            if low is not None:
                values[key] = str(rng.randint(int(low), int(high)))
            else:
                taken = used.setdefault(name, [])
                values[key] = rng.choice([word for word in lists[name] if word not in taken])
                taken.append(values[key])
        return values[key]

    while _SLOT.search(text):
        text = _SLOT.sub(value, text)
    return text
