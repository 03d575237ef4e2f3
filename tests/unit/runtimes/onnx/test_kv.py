"""KV memory: growth keeps rows, commits compact them, slots copy, free cells are finite."""

from mmap import mmap

import numpy as np
import pytest

from medusakit.errors import RuntimeFailure
from medusakit.runtimes.onnx import kv
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
    cache.wipe(2)  # as for a row that takes the slot
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


def test_shorter_and_longer_rows_use_the_same_memory_without_what_others_left():
    cache = filled(slots=3, cells=1000)
    before, memory = both(cache), cache._memory
    assert cache.shrink([200, 130])
    cache.grow(3, 900, [200, 130])
    assert cache._memory is memory
    for new, old in zip(both(cache), before, strict=True):
        for slot, held in enumerate([200, 130]):
            np.testing.assert_array_equal(new[:, slot, :, :, :held], old[:, slot, :, :, :held])
            assert not new[:, slot, :, :, held:].any()
    cache.wipe(2)  # as for a row that takes the slot
    assert not cache.keys[:, 2].any() and not cache.values[:, 2].any()


def test_memory_that_no_row_needed_for_long_is_given_back(monkeypatch):
    monkeypatch.setattr(kv, "KEPT_BYTES", 0)
    monkeypatch.setattr(kv, "PATIENCE", 3)
    cache = filled(cells=1000)
    before, large = both(cache), cache._memory.num_bytes
    moved = [cache.shrink([100, 3]) for _ in range(5)]
    assert moved == [True, False, False, True, False] and cache._memory.num_bytes < large / 4
    for new, old in zip(both(cache), before, strict=True):
        np.testing.assert_array_equal(new[:, 0, :, :, :100], old[:, 0, :, :, :100])
        assert not new[:, 0, :, :, 100:].any()


def test_long_rows_now_and_then_keep_their_memory(monkeypatch):
    monkeypatch.setattr(kv, "KEPT_BYTES", 0)
    monkeypatch.setattr(kv, "PATIENCE", 3)
    cache = filled(cells=1000)
    memory = cache._memory
    for _ in range(4):
        assert [cache.shrink([100, 3]) for _ in range(3)] == [True, False, False]
        cache.grow(2, 900, [100, 3])
        cache.shrink([900, 3])
    assert cache._memory is memory


@pytest.mark.parametrize(("kept", "stays"), [(1 << 20, True), (1 << 10, False)])
def test_what_is_left_when_nothing_is_held_is_bounded(monkeypatch, kept, stays):
    monkeypatch.setattr(kv, "KEPT_BYTES", kept)
    cache = filled()
    memory = cache._memory
    cache.clear()
    assert cache.num_slots == cache.capacity == 0 and (cache._memory is memory) is stays
    assert stays or cache._memory.num_bytes == 0
    cache.grow(2, 10, [0])
    assert not cache.keys[:, 0].any() and not cache.values[:, 0].any()


def test_saved_cells_lie_in_pages_of_their_own():
    saved = filled().save(1, 6)
    for part in saved:
        owner = part
        while isinstance(owner, np.ndarray):
            owner = owner.base
        assert isinstance(owner.obj if isinstance(owner, memoryview) else owner, mmap)
    assert filled().save(1, 0)[0].size == 0
