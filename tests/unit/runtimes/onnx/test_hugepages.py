"""Only memory that appeared meanwhile is touched, and it keeps its contents."""

import sys
import threading
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from medusakit.runtimes.onnx import hugepages
from medusakit.runtimes.onnx.hugepages import added, anonymous_memory, with_large_pages

MB = 1 << 20


@st.composite
def ranges(draw):
    edges = sorted(draw(st.lists(st.integers(0, 60), unique=True, max_size=10)))
    return [(2 * MB * low, 2 * MB * high) for low, high in zip(edges[::2], edges[1::2], strict=False)]


def pages(found):
    return {page for low, high in found for page in range(low // (2 * MB), high // (2 * MB))}


@settings(deadline=None)
@given(before=ranges(), after=ranges())
def test_what_is_added_is_the_difference_in_runs_of_two_large_pages_or_more(before, after):
    found = list(added(before, after))
    new = pages(after) - pages(before)
    assert pages(found) <= new
    parts = [pages([each]) & new for each in after]
    long_runs = {page for part in parts for page in part if {page + 1} <= part or {page - 1} <= part}
    assert pages(found) == long_runs


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_new_memory_is_found_and_keeps_its_contents(monkeypatch):
    seen, collapse = [], hugepages._collapse
    monkeypatch.setattr(hugepages, "_collapse", lambda found: (seen.extend(found), collapse(found)))
    made = with_large_pages(lambda: np.arange(8 * MB, dtype=np.float32))
    for thread in threading.enumerate():
        if thread.name == "large-pages":
            thread.join()
    address = made.ctypes.data
    assert any(low < address + made.nbytes and high > address for low, high in seen)
    np.testing.assert_array_equal(made, np.arange(8 * MB, dtype=np.float32))
    assert not list(added(anonymous_memory(), anonymous_memory()))


def test_nothing_happens_where_there_is_no_map(monkeypatch, tmp_path):
    monkeypatch.setattr(hugepages, "_MAPS", tmp_path / "none")
    assert with_large_pages(lambda: 3) == 3 and anonymous_memory() == []


def test_settling_waits_for_memory_that_moves():
    done = []
    thread = threading.Thread(target=lambda: (time.sleep(0.05), done.append(1)), name=hugepages._THREAD)
    thread.start()
    hugepages.settle()
    assert done
