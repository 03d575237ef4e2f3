"""Stored tensors to float32, for every type."""

from __future__ import annotations

import numpy as np
import pytest
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import dequantize, quantize

from medusakit.errors import ModelError, UnsupportedModelError
from medusakit.models import dequant
from medusakit.models.dequant import BLOCKS, row_bytes, to_f32
from medusakit.models.finite import _SCALES, check_finite
from medusakit.models.spec import StoredTensor

SHAPE = (6, 512)


def random_blocks(format: str, seed: int = 0) -> StoredTensor:
    """Random bytes with finite scales: a valid tensor of the type."""
    raw = np.random.default_rng(seed).integers(0, 256, (SHAPE[0], row_bytes(format, SHAPE[1])), dtype=np.uint8)
    blocks = raw.reshape(SHAPE[0], -1, BLOCKS[format][1])
    for offset in _SCALES[format]:
        blocks[:, :, offset + 1] &= 0xBF  # clears the top exponent bit: below 2
    return StoredTensor("t", format, SHAPE, raw)


@pytest.mark.parametrize("format", BLOCKS)
def test_block_sizes_are_ggmls(format: str) -> None:
    assert BLOCKS[format] == GGML_QUANT_SIZES[GGMLQuantizationType[format.upper()]]


@pytest.mark.parametrize("format", BLOCKS)
def test_blocks_equal_the_gguf_packages_values_whatever_the_slice(format: str, monkeypatch: pytest.MonkeyPatch) -> None:
    tensor = random_blocks(format)
    expected = dequantize(tensor.raw, GGMLQuantizationType[format.upper()])
    assert expected.std() > 0
    for slice_values in (1, 2 * SHAPE[1], 1 << 20):
        monkeypatch.setattr(dequant, "_SLICE_VALUES", slice_values)
        np.testing.assert_array_equal(tensor.f32(), expected)


@pytest.mark.parametrize("format", ["q4_0", "q4_1", "q5_0", "q5_1", "q8_0"])
def test_quantised_values_come_back_within_half_a_step(format: str) -> None:
    values = np.random.default_rng(1).uniform(-1, 1, SHAPE).astype(np.float32)
    raw = quantize(values, GGMLQuantizationType[format.upper()])
    levels = {"q4": 8, "q5": 16, "q8": 127}[format[:2]]
    assert np.abs(StoredTensor("t", format, SHAPE, raw).f32() - values).max() < 1.2 / levels


def test_float_formats_keep_their_values() -> None:
    values = np.array([[1.0, -2.5, 65504.0, 6e-8]], np.float32)
    half = StoredTensor("t", "f16", values.shape, values.astype(np.float16))
    np.testing.assert_array_equal(half.f32(), values.astype(np.float16).astype(np.float32))
    # 1.0, -2, 1.5 * 2**100 and the smallest subnormal: bit patterns of bfloat16 written out
    brain = StoredTensor("t", "bf16", (4,), np.array([0x3F80, 0xC000, 0x71C0, 0x0001], np.uint16))
    np.testing.assert_array_equal(brain.f32(), np.array([1.0, -2.0, 1.5 * 2.0**100, 2.0**-133], np.float32))


def test_float32_is_a_view() -> None:
    values = np.ones((2, 3), np.float32)
    assert np.shares_memory(StoredTensor("t", "f32", (2, 3), values).f32(), values)


def test_partial_blocks_and_unknown_formats_are_refused() -> None:
    with pytest.raises(ModelError, match="blocks of 32 values, but a row has 33"):
        row_bytes("q8_0", 33)
    with pytest.raises(UnsupportedModelError, match="'t' has the type iq2_xs"):
        to_f32(StoredTensor("t", "iq2_xs", (1, 1), np.zeros((1, 1), np.uint8)))


@pytest.mark.parametrize("format", BLOCKS)
@pytest.mark.parametrize("bits", [0x7C00, 0xFE00])  # infinity, a NaN
def test_a_bad_scale_is_found_where_it_is(format: str, bits: int) -> None:
    tensor = random_blocks(format)
    check_finite(tensor)
    values, size = BLOCKS[format]
    for offset in _SCALES[format]:
        raw = tensor.raw.copy()
        raw.reshape(SHAPE[0], -1, size)[4, 1, offset : offset + 2] = np.array([bits], np.uint16).view(np.uint8)
        bad = StoredTensor("layers.3.up", format, SHAPE, raw)
        with np.errstate(all="ignore"):
            assert not np.isfinite(bad.f32()).all()
        with pytest.raises(ModelError, match=rf"'layers\.3\.up' is NaN or infinite in row 4, column {values}"):
            check_finite(bad)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("format", ["f32", "f16", "bf16"])
def test_a_bad_value_is_found_where_it_is(format: str, value: float) -> None:
    values = np.zeros((5, 7), np.float32)
    values[3, 6] = value
    raw = {
        "f32": values,
        "f16": values.astype(np.float16),
        "bf16": (values.view(np.uint32) >> 16).astype(np.uint16),
    }[format]
    with pytest.raises(ModelError, match="row 3, column 6"):
        check_finite(StoredTensor("t", format, values.shape, raw))


def test_large_finite_values_pass() -> None:
    # their sum overflows, so the quick test is suspicious and the exact one decides
    check_finite(StoredTensor("t", "f32", (4, 4), np.full((4, 4), 3e38, np.float32)))
    check_finite(StoredTensor("t", "f16", (4, 4), np.full((4, 4), 65504, np.float16)))
