"""Stored blocks as integers: nothing rounded, nothing out of its container; rounding here stays within half a step."""

import numpy as np
import pytest

from medusakit.models.dequant import BLOCKS
from medusakit.models.spec import StoredTensor
from medusakit.runtimes.onnx import blocks as blocks_module
from medusakit.runtimes.onnx.blocks import is_block_format, quantise, stored_bits, unpack
from quantised import random_blocks


def plain_tensor(values: np.ndarray) -> StoredTensor:
    return StoredTensor("w", "f32", values.shape, values)


@pytest.mark.parametrize("format", BLOCKS)
def test_unpacked_blocks_are_the_stored_values(format):
    tensor = random_blocks(format)
    blocks = unpack(tensor)
    expected = tensor.f32()
    assert blocks.bits == stored_bits(tensor) and is_block_format(tensor)
    assert blocks.q.min() >= -(2 ** (blocks.bits - 1)) and blocks.q.max() <= 2 ** (blocks.bits - 1) - 1
    # offset = minimum + centre * scale is a float32 sum, so formats with minima may differ in the last bit
    np.testing.assert_allclose(blocks.values(), expected, rtol=0, atol=3e-7 * np.abs(expected).max())


@pytest.mark.parametrize("format", [f for f in BLOCKS if f in ("q4_0", "q5_0", "q8_0", "q3_k", "q6_k")])
def test_symmetric_formats_need_no_offsets_and_are_exact(format):
    blocks = unpack(random_blocks(format))
    assert blocks.offsets is None
    np.testing.assert_array_equal(blocks.values(), random_blocks(format).f32())


def test_slices_of_rows_join(monkeypatch):
    expected = unpack(random_blocks("q4_1"))
    monkeypatch.setattr(blocks_module, "_SLICE_VALUES", 2 * 96)  # two of the five rows at a time
    found = unpack(random_blocks("q4_1"))
    for name in ("q", "scales", "offsets"):
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name))


@pytest.mark.parametrize(("bits", "step"), [(8, 127), (4, 8)])
def test_rounding_is_to_the_nearest_step(bits, step):
    values = np.random.default_rng(0).normal(size=(6, 64)).astype(np.float32)
    blocks = quantise(plain_tensor(values), bits)
    worst = np.abs(values.reshape(6, 2, 32)).max(-1) / step
    error = np.abs(blocks.values() - values).reshape(6, 2, 32).max(-1)
    # at 4 bits the scale follows the signed extreme, so the far end of the other side may be one step short
    assert (error <= worst * (0.501 if bits == 8 else 1.001)).all()


def test_rounding_pads_a_last_block_and_survives_zeros():
    values = np.zeros((2, 40), np.float32)
    values[1, 39] = 3.0
    blocks = quantise(plain_tensor(values), 8)
    assert blocks.q.shape == (2, 2, 32)
    np.testing.assert_array_equal(blocks.values()[:, :40], values)


def test_values_that_fit_are_kept():
    q = np.random.default_rng(1).integers(-8, 8, (3, 32)).astype(np.float32)
    q[:, 0] = -8
    np.testing.assert_array_equal(quantise(plain_tensor(q * 0.5), 4).values(), q * 0.5)


def test_plain_formats_are_no_blocks():
    tensor = StoredTensor("w", "f32", (1, 2), np.zeros((1, 2), np.float32))
    assert not is_block_format(tensor) and stored_bits(tensor) == 32
