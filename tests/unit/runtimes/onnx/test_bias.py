"""The bias against its definition, cell by cell."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from medusakit.runtimes.onnx.bias import CLOSED, write_bias
from medusakit.runtimes.onnx.cells import cell_of, node_cells
from medusakit.tree.topology import Topology


@st.composite
def topologies(draw):
    size = draw(st.integers(1, 9))
    return Topology.from_parents([-1, *(draw(st.integers(0, i - 1)) for i in range(1, size))])


def expected_bias(length, topology, window, columns):
    out = np.full((topology.num_nodes, columns), CLOSED, np.float32)
    cells = node_cells(length, topology.depths)
    for node in range(topology.num_nodes):
        position = length + topology.depths[node]
        for other in range(length):
            if not window or position - other < window:
                out[node, cell_of(other)] = 0
        for other in range(topology.num_nodes):
            near = not window or topology.depths[node] - topology.depths[other] < window
            if topology.ancestors[node, other] and near:
                out[node, cells[other]] = 0
    return out


@settings(deadline=None)
@given(
    topology=topologies(),
    length=st.one_of(st.integers(0, 12), st.integers(889, 899)),
    window=st.sampled_from([0, 1, 3, 8, 500]),
    extra=st.integers(0, 3),
)
def test_bias_is_its_definition(topology, length, window, extra):
    cells = node_cells(length, topology.depths)
    columns = int(cells.max()) + 1 + extra
    out = np.full((topology.num_nodes, columns), 7, np.float32)
    write_bias(out, length, cells, topology.ancestors, topology.depths, window)
    np.testing.assert_array_equal(out, expected_bias(length, topology, window, columns))


def test_closed_is_zero_after_softmax():
    assert np.exp(CLOSED + np.float32(1e4)) == 0
