"""Every family that transformers can make a causal language model of decodes exactly, or is refused with a reason."""

from __future__ import annotations

import pytest

from family_outcome import RIGHT, outcome
from tiny_families import FAMILIES


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_a_family_decodes_exactly_or_is_refused_with_a_reason(family: str) -> None:
    found = outcome(family)
    assert found.kind in RIGHT and (found.reason or found.kind == "trees")


@pytest.mark.parametrize(
    ("family", "kind"),
    [("roberta", "trees"), ("bart", "chains"), ("doge", "plain"), ("gemma4_text", "trees"), ("reformer", "refused")],
)
def test_what_families_of_odd_kinds_come_to(family: str, kind: str) -> None:
    """Positions that begin at another number, positions of the model's own, a mask that depends on the cache, fields
    that vary by layer, and a model that runs by its own `generate` alone."""
    if family not in FAMILIES:
        pytest.skip(f"this transformers has no {family}")
    assert outcome(family).kind == kind
