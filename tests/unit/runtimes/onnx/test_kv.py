"""KV memory: growth keeps rows, commits compact them, slots copy, free cells are finite."""

import numpy as np
import pytest

from medusakit.errors import RuntimeFailure
from medusakit.runtimes.onnx.kv import KvCache


def filled(slots=2, cells=10):
    cache = KvCache(num_layers=3, kv_heads=2, head_dim=32)
    assert not cache.has_room(slots, cells)
    cache.grow(slots, cells, [])
    assert not cache.keys.any() and not cache.values.any()
    for memory in (cache.keys, cache.values):
        memory[:] = np.random.default_rng(0).normal(size=memory.shape)
    return cache


def both(cache):
    return [cache.keys.copy(), cache.values.copy()]


def test_room_is_what_was_made():
    cache = filled()
    assert cache.has_room(2, cache.capacity)
    assert not cache.has_room(3, cache.capacity) and not cache.has_room(2, cache.capacity + 1)


def test_growth_keeps_what_rows_hold():
    cache = filled()
    before, capacity = both(cache), cache.capacity
    cache.grow(3, capacity + 1, [7, 2])
    assert cache.num_slots == 3 and cache.capacity > capacity
    for new, old in zip(both(cache), before, strict=True):
        np.testing.assert_array_equal(new[:, 0, :, :, :7], old[:, 0, :, :, :7])
        np.testing.assert_array_equal(new[:, 1, :, :, :2], old[:, 1, :, :, :2])
        assert not new[:, 2].any() and not new[:, 1, :, :, 2:].any()


def test_growth_at_a_block_boundary_copies_what_there_is():
    cache = filled()
    before, capacity = both(cache), cache.capacity
    cache.grow(2, 1100, [1024, 3])
    for new, old in zip(both(cache), before, strict=True):
        np.testing.assert_array_equal(new[:, 0, :, :, :capacity], old[:, 0])


@pytest.mark.parametrize("sources", [[5, 6, 7], [5, 7, 9], [6], [7, 6, 8]])
def test_a_move_is_all_at_once_and_of_one_row(sources):
    cache = filled()
    before = both(cache)
    targets = np.arange(5, 5 + len(sources))
    cache.move(1, np.array(sources), targets)
    for new, old in zip(both(cache), before, strict=True):
        np.testing.assert_array_equal(new[:, 1][:, :, :, targets], old[:, 1][:, :, :, sources])
        np.testing.assert_array_equal(new[:, 0], old[:, 0])
        np.testing.assert_array_equal(new[:, 1, :, :, :5], old[:, 1, :, :, :5])


def test_a_row_moves_into_another_slot():
    cache = filled()
    before = both(cache)
    cache.copy_slot(1, 0, 6)
    for new, old in zip(both(cache), before, strict=True):
        np.testing.assert_array_equal(new[:, 0, :, :, :6], old[:, 1, :, :, :6])


def test_a_cache_that_no_machine_holds_is_refused_with_its_size():
    cache = KvCache(num_layers=1000, kv_heads=128, head_dim=128)
    with pytest.raises(RuntimeFailure, match="MiB"):
        cache.grow(100_000, 1_000_000, [])


def test_what_another_row_left_is_wiped_to_the_last_cell():
    cache = KvCache(num_layers=3, kv_heads=2, head_dim=32)
    cache.grow(2, 10, [])
    cache.will_write([4, 9])
    for memory in (cache.keys, cache.values):
        memory[:, 0, :, :, :4] = 1
        memory[:, 1, :, :, :9] = np.nan
    cache.wipe(1, 2)
    assert np.isnan(cache.keys[:, 1, :, :, :2]).all() and not cache.keys[:, 1, :, :, 2:].any()
    cache.wipe(1)
    assert not cache.keys[:, 1].any() and not cache.values[:, 1].any()
    assert cache.keys[:, 0, :, :, :4].all()


def test_a_row_that_moves_leaves_nothing_of_the_one_before():
    cache = KvCache(num_layers=3, kv_heads=2, head_dim=32)
    cache.grow(2, 10, [])
    cache.will_write([9, 4])
    cache.keys[:, 0, :, :, :9], cache.keys[:, 1, :, :, :4] = np.nan, 1
    cache.copy_slot(1, 0, 4)
    assert (cache.keys[:, 0, :, :, :4] == 1).all() and not cache.keys[:, 0, :, :, 4:].any()


def test_saved_cells_are_copies_and_come_back():
    cache = filled()
    saved, before = cache.save(1, 6), both(cache)
    cache.keys[:], cache.values[:] = 0, 0
    cache.restore(0, saved, 4)
    for new, old in zip(both(cache), before, strict=True):
        np.testing.assert_array_equal(new[:, 0, :, :, :4], old[:, 1, :, :, :4])
        assert not new[:, 0, :, :, 4:].any() and not new[:, 1].any()


def test_memory_shrinks_to_what_is_held_when_that_frees_more_than_half():
    cache = filled(cells=1000)
    before = both(cache)
    assert not cache.shrink([700, 3]) and cache.capacity >= 1000
    assert cache.shrink([200, 3]) and cache.capacity < 300
    for new, old in zip(both(cache), before, strict=True):
        np.testing.assert_array_equal(new[:, 0, :, :, :200], old[:, 0, :, :, :200])
        np.testing.assert_array_equal(new[:, 1, :, :, :3], old[:, 1, :, :, :3])
        assert not new[:, 0, :, :, 200:].any() and not new[:, 1, :, :, 3:].any()
    assert not cache.shrink([200, 3])
