"""Sequences of ids: how far two agree."""

from __future__ import annotations

import pytest

from medusakit.verify.history import common_prefix


@pytest.mark.parametrize(
    ("left", "right", "length"),
    [
        ([], [1], 0),
        ([1], [], 0),
        ([1, 2], [1, 2, 3], 2),
        ([1, 2, 3], [1, 2], 2),
        ([1, 2, 3], [1, 4, 3], 1),
        ((1, 2), [1, 2, 3], 2),
        ([5], [6], 0),
    ],
)
def test_common_prefix(left, right, length):
    assert common_prefix(left, right) == length
