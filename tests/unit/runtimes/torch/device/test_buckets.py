"""The sizes that passes are padded to, by their own examples."""

from __future__ import annotations

import doctest

from medusakit.runtimes.torch.device import buckets, runtime


def test_the_examples_hold() -> None:
    for module in (buckets, runtime):
        found = doctest.testmod(module)
        assert found.attempted and not found.failed
