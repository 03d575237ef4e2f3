"""The prefix cache under any sequence of requests: bytes and blocks in their limits, keys apart, prefixes true."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from medusakit.engine.prefixes import PrefixCache
from medusakit.runtimes.base import RowMemory

REQUESTS = st.lists(
    st.tuples(st.sampled_from("AB"), st.lists(st.integers(0, 2), min_size=1, max_size=12), st.booleans()), max_size=40
)


@settings(max_examples=150, deadline=None)
@given(REQUESTS, st.integers(0, 60), st.none() | st.integers(0, 40), st.integers(1, 4), st.none() | st.integers(1, 8))
def test_limits_hold_and_what_is_found_was_asked_by_the_same_key(requests, max_bytes, per_key, block, max_blocks):
    cache = PrefixCache(max_bytes, per_key, least=1, block_tokens=block, max_blocks=max_blocks)
    limit = max_bytes if per_key is None else min(per_key, max_bytes)
    added: dict[str, list[list[int]]] = {"A": [], "B": []}
    for key, ids, look in requests:
        found = cache.find(key, ids) if look else None
        if found is not None:
            assert 0 < found.length < len(ids) and found.length % block == 0
            assert any(one[: found.length] == ids[: found.length] for one in added[key])
            assert found.memory.arrays[0].tolist()[: found.length] == ids[: found.length]
        cache.add(key, ids, lambda ids=ids: RowMemory(len(ids), (np.asarray(ids, np.int8),)))
        added[key].append(ids)
        state = cache.state()
        assert state.num_bytes <= max_bytes and all(held <= limit for held in state.bytes_by_key.values())
        if max_blocks is not None:  # an entry has at least the bytes of its whole blocks
            assert sum(len(one.ids) // block for one in cache._entries) <= max_blocks
