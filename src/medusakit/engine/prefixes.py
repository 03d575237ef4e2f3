"""The prefix cache: KV of finished sequences, copied out of the runtime's rows, for later ones that begin the same way.

Copies (some 10 ms per thousand positions of the embedded model, where running them takes seconds) rather than rows that
stay: a row that only keeps something would be computed in every pass that covers it, would make every other row's
attention as long as its own, and could not be counted in bytes. Matching is over token ids, which hold whatever the
answer's text is when it is tokenised again, and never crosses keys.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from medusakit.engine.engine import SavedPrefix
from medusakit.engine.jobs import CacheState, SchedulerSettings
from medusakit.runtimes.base import RowMemory
from medusakit.tree.topology import IntArray

MAX_ENTRIES = 1024  # a look-up compares with all of one key


@dataclass(frozen=True, slots=True, eq=False)
class _Entry:
    key: str
    ids: IntArray
    memory: RowMemory


class PrefixCache:
    """Not thread-safe: it belongs to the engine's thread.

    max_bytes     of all keys together, and of one key; the entry that was used longest ago goes first
    least         prefixes shorter than this are neither kept nor used: every chat begins with the same few tokens
    block_tokens  positions are kept and reused in whole blocks of so many; what is over, is run again
    max_blocks    of all entries together; None: as many as the bytes hold
    """

    def __init__(
        self,
        max_bytes: int,
        max_bytes_per_key: int | None = None,
        *,
        least: int = 16,
        block_tokens: int = 1,
        max_blocks: int | None = None,
    ) -> None:
        self._max_bytes = max_bytes
        self._max_per_key = max_bytes if max_bytes_per_key is None else min(max_bytes_per_key, max_bytes)
        self._least = max(1, least)
        self._block, self._max_blocks = block_tokens, max_blocks
        self._entries: list[_Entry] = []  # used longest ago first
        self._hits = self._misses = self._hit_tokens = self._evictions = 0

    @classmethod
    def of(cls, settings: SchedulerSettings) -> PrefixCache:
        return cls(
            settings.cache_bytes,
            settings.cache_bytes_per_key,
            least=settings.cache_least_tokens,
            block_tokens=settings.cache_block_tokens,
            max_blocks=settings.cache_blocks,
        )

    def find(self, key: str, ids: Sequence[int]) -> SavedPrefix | None:
        """The longest prefix of `ids`, without the last one (whose scores are wanted), that this key has left."""
        wanted = np.asarray(ids[:-1], np.int64)
        best, length = None, self._least - 1
        for entry in self._of(key):
            found = self._whole(_common(entry.ids, wanted))
            if found > length:
                best, length = entry, found
        if best is None:
            self._misses += 1
            return None
        self._hits, self._hit_tokens = self._hits + 1, self._hit_tokens + length
        self._touch(best)
        return SavedPrefix(best.memory, length)

    def add(self, key: str, ids: Sequence[int], save: Callable[[], RowMemory]) -> None:
        """Keep `ids`, whose KV `save` copies, unless something kept begins with them, or they alone are over the limit.
        Entries that they begin with go."""
        length = self._whole(len(ids))
        if self._max_per_key <= 0 or length < self._least or self._blocks(length) > self._most_blocks:
            return
        new = np.asarray(ids[:length], np.int64)
        covering = next((entry for entry in self._of(key) if _common(entry.ids, new) == len(new)), None)
        if covering is not None:
            return self._touch(covering)
        memory = save()
        if memory.num_bytes > self._max_per_key:
            return
        for entry in self._of(key):
            if _common(entry.ids, new) == len(entry.ids):
                self._entries.remove(entry)
        self._entries.append(_Entry(key, new, memory))
        self._shrink(key)

    def clear(self) -> None:
        self._entries.clear()

    def state(self) -> CacheState:
        by_key: dict[str, int] = {}
        for entry in self._entries:
            by_key[entry.key] = by_key.get(entry.key, 0) + entry.memory.num_bytes
        return CacheState(
            len(self._entries),
            sum(by_key.values()),
            self._max_bytes,
            self._hits,
            self._misses,
            self._hit_tokens,
            self._evictions,
            by_key,
        )

    def _of(self, key: str) -> list[_Entry]:
        return [entry for entry in self._entries if entry.key == key]

    def _touch(self, entry: _Entry) -> None:
        self._entries.remove(entry)
        self._entries.append(entry)

    def _shrink(self, key: str) -> None:
        while _bytes(self._of(key)) > self._max_per_key:
            self._evict(self._of(key)[0])
        while _bytes(self._entries) > self._max_bytes or len(self._entries) > MAX_ENTRIES or self._too_many():
            self._evict(self._entries[0])

    @property
    def _most_blocks(self) -> float:
        return float("inf") if self._max_blocks is None else self._max_blocks

    def _too_many(self) -> bool:
        return sum(self._blocks(len(entry.ids)) for entry in self._entries) > self._most_blocks

    def _whole(self, length: int) -> int:
        """The positions of whole blocks among these."""
        return length - length % self._block

    def _blocks(self, length: int) -> int:
        return length // self._block

    def _evict(self, entry: _Entry) -> None:
        self._entries.remove(entry)
        self._evictions += 1


def _bytes(entries: Sequence[_Entry]) -> int:
    return sum(entry.memory.num_bytes for entry in entries)


def _common(left: IntArray, right: IntArray) -> int:
    """Length of the longest common prefix."""
    length = min(len(left), len(right))
    differs = np.flatnonzero(left[:length] != right[:length])
    return int(differs[0]) if len(differs) else length
