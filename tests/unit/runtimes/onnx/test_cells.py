"""Cells: nodes stay in the block of their positions, paths keep their order, nothing overlaps what is held."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from medusakit.runtimes.onnx.cells import BLOCK, cell_of, node_cells, open_held
from medusakit.tree.topology import Topology

LENGTHS = st.one_of(st.integers(0, 5000), st.integers(870, 900), st.integers(1780, 1800))


@st.composite
def topologies(draw):
    size = draw(st.integers(1, 128))
    return Topology.from_parents([-1, *(draw(st.integers(0, i - 1)) for i in range(1, size))])


@settings(deadline=None)
@given(length=LENGTHS, topology=topologies())
def test_nodes_lie_in_the_block_of_their_positions_in_the_order_of_their_paths(length, topology):
    cells = node_cells(length, topology.depths)
    committed = np.array([cell_of(length + depth) for depth in topology.depths.tolist()])
    np.testing.assert_array_equal(cells // BLOCK, committed // BLOCK)
    children = np.arange(1, len(cells))
    assert np.all(cells[topology.parents[children]] < cells[children])
    assert len(set(cells.tolist())) == len(cells)


@settings(deadline=None)
@given(length=LENGTHS, topology=topologies())
def test_nodes_lie_where_no_held_position_is(length, topology):
    last = node_cells(length, topology.depths).max() + 1
    open_columns = np.ones((2, last), np.float32)
    open_held(open_columns, length)
    held = np.flatnonzero(open_columns[0] == 0)
    np.testing.assert_array_equal(held, [cell_of(position) for position in range(length)])
    assert not set(held.tolist()) & set(node_cells(length, topology.depths).tolist())


@settings(deadline=None)
@given(length=LENGTHS, count=st.integers(1, 300))
def test_a_chain_lies_where_it_will_be_committed(length, count):
    cells = node_cells(length, np.arange(count))
    np.testing.assert_array_equal(cells, [cell_of(length + depth) for depth in range(count)])


def test_a_tree_too_large_for_the_spare_cells_still_gets_its_own():
    topology = Topology.dense([200, 2])
    cells = node_cells(890, topology.depths)
    assert len(set(cells.tolist())) == topology.num_nodes and cells.min() == cell_of(890)
