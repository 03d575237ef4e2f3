"""The bias against its definition, position by position."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from medusakit.runtimes.onnx.bias import CLOSED, write_bias, write_chain_bias
from medusakit.tree.topology import Topology


@st.composite
def topologies(draw):
    size = draw(st.integers(1, 9))
    return Topology.from_parents([-1, *(draw(st.integers(0, i - 1)) for i in range(1, size))])


def expected_bias(length, topology, window, columns):
    """What a node may not see is closed, except what the kernel's own causal mask (later indices) closes."""
    n = topology.num_nodes
    out = np.zeros((n, columns), np.float32)
    for node in range(n):
        position = length + topology.depths[node]
        for column in range(length + n):
            other = column if column < length else length + topology.depths[column - length]
            seen = column < length or topology.ancestors[node, column - length]
            if not seen or (window and position - other >= window):
                out[node, column] = CLOSED
    return out


@given(topology=topologies(), length=st.integers(0, 12), window=st.sampled_from([0, 1, 3, 8]), extra=st.integers(0, 3))
def test_bias_is_its_definition(topology, length, window, extra):
    n = topology.num_nodes
    out = np.full((n + extra, length + n + extra), 7, np.float32)
    write_bias(out, length, topology, window)
    np.testing.assert_array_equal(out[:n], expected_bias(length, topology, window, length + n + extra))


@pytest.mark.parametrize("window", [0, 1, 3, 50])
def test_a_chain_needs_only_its_window(window):
    topology, length = Topology.chain(4), 6
    out = np.full((5, 11), 7, np.float32)
    write_chain_bias(out, length, 5, window)
    seen = np.tri(5, 11, length, dtype=bool)  # the rest is the kernel's own mask
    np.testing.assert_array_equal(out[seen], expected_bias(length, topology, window, 11)[seen])


def test_closed_is_zero_after_softmax():
    assert np.exp(CLOSED + np.float32(1e4)) == 0
