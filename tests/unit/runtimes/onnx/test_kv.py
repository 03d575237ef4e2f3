"""KV memory: growth keeps rows, commits compact them, slots copy."""

import numpy as np
import pytest

from medusakit.errors import RuntimeFailure
from medusakit.runtimes.onnx.kv import KvCache


def filled(slots=2, positions=10):
    cache = KvCache(num_layers=3, kv_heads=2, head_dim=4)
    assert not cache.has_room(slots, positions)
    cache.grow(slots, positions, [])
    cache.buffer[:] = np.random.default_rng(0).normal(size=cache.buffer.shape)
    return cache


def test_room_is_what_was_made():
    cache = filled()
    assert cache.has_room(2, cache.capacity)
    assert not cache.has_room(3, cache.capacity) and not cache.has_room(2, cache.capacity + 1)


def test_growth_keeps_what_rows_hold():
    cache = filled()
    before, capacity = cache.buffer.copy(), cache.capacity
    cache.grow(3, capacity + 1, [7, 2])
    assert cache.num_slots == 3 and cache.capacity > capacity
    np.testing.assert_array_equal(cache.buffer[:, 0, :, :7], before[:, 0, :, :7])
    np.testing.assert_array_equal(cache.buffer[:, 1, :, :2], before[:, 1, :, :2])


@pytest.mark.parametrize("nodes", [[0, 1, 2], [0, 2, 4], [1], [0, 1, 4, 6], []])
def test_a_commit_moves_its_nodes_down(nodes):
    cache, sources = filled(), [5 + node for node in nodes]
    before = cache.buffer.copy()
    cache.keep(1, 5, nodes)
    np.testing.assert_array_equal(cache.buffer[:, 1, :, 5 : 5 + len(sources)], before[:, 1][:, :, sources])
    np.testing.assert_array_equal(cache.buffer[:, 0], before[:, 0])
    np.testing.assert_array_equal(cache.buffer[:, 1, :, :5], before[:, 1, :, :5])


def test_a_row_moves_into_another_slot():
    cache = filled()
    before = cache.buffer.copy()
    cache.copy_slot(1, 0, 6)
    np.testing.assert_array_equal(cache.buffer[:, 0, :, :6], before[:, 1, :, :6])


def test_a_cache_that_no_machine_holds_is_refused_with_its_size():
    cache = KvCache(num_layers=1000, kv_heads=128, head_dim=128)
    with pytest.raises(RuntimeFailure, match="MiB"):
        cache.grow(100_000, 1_000_000, [])
