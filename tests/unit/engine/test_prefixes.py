"""The prefix cache: longest prefix, least recently used goes first, bytes in their limits, keys apart."""

import numpy as np

from medusakit.engine.prefixes import PrefixCache
from medusakit.runtimes.base import RowMemory


def memory(num_bytes: int = 10, length: int = 0) -> RowMemory:
    return RowMemory(length, (np.zeros(num_bytes, np.int8),))


def held(cache: PrefixCache, *, key: str = "", num_bytes: int = 10, **ids: list[int]) -> dict[str, RowMemory]:
    """Add entries in order."""
    found = {}
    for name, tokens in ids.items():
        found[name] = memory(num_bytes, len(tokens))
        cache.add(key, tokens, lambda name=name: found[name])
    return found


def hit(cache: PrefixCache, ids: list[int], key: str = "") -> tuple[RowMemory, int] | None:
    found = cache.find(key, ids)
    return (found.memory, found.length) if found else None


def test_the_longest_prefix_is_found_and_the_last_id_is_left_to_run() -> None:
    cache = PrefixCache(1000, least=2)
    kept = held(cache, short=[1, 2, 3, 9], long=[1, 2, 3, 4, 5])
    assert hit(cache, [1, 2, 3, 4, 7]) == (kept["long"], 4)
    assert hit(cache, [1, 2, 3, 9, 9, 9]) == (kept["short"], 4)
    assert hit(cache, [1, 2, 3, 4, 5]) == (kept["long"], 4)
    assert hit(cache, [1, 9]) is None and hit(cache, [1]) is None
    state = cache.state()
    assert (state.hits, state.misses, state.hit_tokens) == (3, 2, 12)


def test_keys_never_meet() -> None:
    cache = PrefixCache(1000, least=1)
    held(cache, key="A", one=[1, 2, 3])
    assert hit(cache, [1, 2, 3, 4], "B") is None and hit(cache, [1, 2, 3, 4], "") is None
    assert hit(cache, [1, 2, 3, 4], "A") is not None


def test_an_entry_that_grows_replaces_its_own_beginning_and_one_that_is_there_is_not_copied_again() -> None:
    cache = PrefixCache(1000, least=1)
    kept = held(cache, turn1=[1, 2, 3], other=[1, 7], turn2=[1, 2, 3, 4])
    assert cache.state().num_entries == 2
    assert hit(cache, [1, 2, 3, 9]) == (kept["turn2"], 3)
    cache.add("", [1, 2], lambda: memory(0))  # would be an entry of no bytes
    assert cache.state().num_entries == 2 and cache.state().num_bytes == 20
    assert cache.state().evictions == 0


def test_the_least_recently_used_goes_first() -> None:
    cache = PrefixCache(30, least=1)
    held(cache, a=[1, 1], b=[2, 2], c=[3, 3])
    assert hit(cache, [1, 1, 1]) is not None
    held(cache, d=[4, 4])
    assert hit(cache, [2, 2, 2]) is None
    assert all(hit(cache, [token] * 3) for token in (1, 3, 4))
    assert cache.state().evictions == 1 and cache.state().num_bytes == 30


def test_a_key_stays_in_its_own_limit_and_takes_nothing_from_others_with_it() -> None:
    cache = PrefixCache(100, 20, least=1)
    held(cache, key="A", one=[1, 1])
    held(cache, key="B", one=[1], two=[2, 2], three=[3, 3], four=[4, 4])
    assert cache.state().bytes_by_key == {"A": 10, "B": 20}
    held(cache, key="B", num_bytes=21, too_large=[4, 4, 4])
    assert cache.state().bytes_by_key == {"A": 10, "B": 20}
    assert hit(cache, [4, 4, 4, 4], "B") is not None


def test_short_ones_are_neither_kept_nor_used_and_no_bytes_mean_no_cache() -> None:
    cache = PrefixCache(100, least=3)
    held(cache, short=[1, 2], long=[5, 6, 7])
    assert cache.state().num_entries == 1
    assert hit(cache, [5, 6, 9, 9]) is None and hit(cache, [5, 6, 7, 9]) is not None
    off = PrefixCache(0)
    off.add("", list(range(50)), lambda: 1 / 0)
    assert off.state().num_entries == 0
    cache.clear()
    assert cache.state().num_bytes == 0


def test_whole_blocks_are_kept_and_reused() -> None:
    cache = PrefixCache(1000, least=1, block_tokens=4)
    held(cache, one=[1, 2, 3, 4, 5, 6, 7, 8, 9, 10])  # two blocks; 9 and 10 are over
    assert hit(cache, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11])[1] == 8
    assert hit(cache, [1, 2, 3, 4, 5, 6, 7, 9, 9])[1] == 4  # seven are common
    assert hit(cache, [1, 2, 3, 9, 9]) is None
    held(cache, short=[7, 7, 7])
    assert cache.state().num_entries == 1


def test_the_count_of_blocks_bounds_what_is_kept() -> None:
    cache = PrefixCache(1000, least=1, block_tokens=2, max_blocks=3)
    held(cache, a=[1, 1, 1, 1], b=[2, 2])
    assert cache.state().num_entries == 2
    held(cache, c=[3, 3])  # the oldest two blocks go
    assert hit(cache, [1, 1, 1]) is None and hit(cache, [2, 2, 2]) and hit(cache, [3, 3, 3])
    cache.add("", [4] * 8, lambda: 1 / 0)  # four blocks fit nowhere: nothing is copied, nobody goes
    assert (cache.state().num_entries, cache.state().evictions) == (2, 1)
