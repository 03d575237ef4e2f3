"""Heads spread over the kernel's larger ones keep dot products, rotations and norms."""

from dataclasses import replace

import numpy as np
import pytest

from medusakit.models.spec import RopeSpec, StoredTensor
from medusakit.runtimes.onnx.heads import HeadLayout
from medusakit.runtimes.reference_source import random_source

SPEC = random_source(0, 16).spec


def layout(head_dim, rotated):
    return HeadLayout.of(replace(SPEC, head_dim=head_dim, rope=RopeSpec(10000.0, rotated)))


@pytest.mark.parametrize(("head_dim", "rotated"), [(64, 64), (128, 96), (96, 96), (32, 16), (16, 16)])
def test_usual_heads_stay_as_they_are(head_dim, rotated):
    found = layout(head_dim, rotated)
    assert found.is_plain and found.size == head_dim and found.half == rotated // 2
    np.testing.assert_array_equal(found.places, np.arange(head_dim))


@pytest.mark.parametrize(("head_dim", "rotated"), [(4, 4), (8, 8), (16, 8), (24, 24), (20, 10)])
def test_other_heads_are_spread(head_dim, rotated):
    found = layout(head_dim, rotated)
    assert found.size % 16 == 0 and found.half % 8 == 0 and 2 * found.half <= found.size
    assert len(set(found.places.tolist())) == head_dim
    pairs = rotated // 2
    np.testing.assert_array_equal(found.places[pairs : 2 * pairs] - found.places[:pairs], found.half)
    assert (found.places[rotated:] >= 2 * found.half).all()


def test_rows_of_any_format_are_spread_with_zeros():
    found = layout(4, 4)
    raw = np.arange(1, 2 * 4 * 3 + 1, dtype=np.uint8).reshape(8, 3)
    spread = found.spread(StoredTensor("q", "q8_0", (8, 32), raw))
    assert spread.shape == (2 * found.size, 32)
    np.testing.assert_array_equal(spread.raw.reshape(2, found.size, 3)[:, found.places], raw.reshape(2, 4, 3))
    assert np.count_nonzero(spread.raw) == raw.size


def test_norms_of_a_spread_head_are_those_of_the_head():
    found, eps = layout(8, 8), 1e-3
    rng = np.random.default_rng(0)
    x, weight = rng.normal(size=8).astype(np.float32), rng.normal(size=8).astype(np.float32)
    wide = np.zeros(found.size, np.float32)
    wide[found.places] = x
    expected = x / np.sqrt((x**2).mean() + eps) * weight
    normed = wide / np.sqrt((wide**2).mean() + eps * found.norm_share) * found.spread_norm(weight)
    np.testing.assert_allclose(normed[found.places], expected, rtol=1e-5)
