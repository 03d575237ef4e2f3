"""Heads made worse: how much, reproducibly, and only in memory."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from bench_fakes import headed_llm
from medusakit.artifact.io import Artifact, load_artifact
from medusakit.bench.degraded import noisy, shuffled
from medusakit.drafters.registry import load_drafter


@pytest.fixture
def artifact(tmp_path: Path) -> Artifact:
    found = headed_llm(tmp_path / "heads").parts.artifact
    assert found is not None
    return found


@pytest.mark.parametrize("strength", [0.1, 1.0])
def test_noise_is_as_strong_as_asked(artifact: Artifact, strength: float) -> None:
    whole, changed = artifact.tensors(), noisy(artifact, strength, seed=1).tensors()
    for name in ("w_in", "w_out"):
        before = whole[name].astype(np.float64)
        ratio = (changed[name].astype(np.float64) - before).std() / before.std()
        assert ratio == pytest.approx(strength, rel=0.15)
    assert noisy(artifact, strength, seed=1).tensors()["w_in"].tobytes() == changed["w_in"].tobytes()
    assert noisy(artifact, strength, seed=2).tensors()["w_in"].tobytes() != changed["w_in"].tobytes()


def test_shuffled_weights_are_the_same_ones_elsewhere(artifact: Artifact) -> None:
    whole, changed = artifact.tensors(), shuffled(artifact).tensors()
    assert (whole["w_in"] != changed["w_in"]).mean() > 0.9
    assert np.array_equal(np.sort(whole["w_in"], axis=None), np.sort(changed["w_in"], axis=None))


def test_they_still_draft_the_same_vocabulary_and_nothing_is_written(artifact: Artifact) -> None:
    import drafter_toys as toys

    for changed in (noisy(artifact, 0.5), shuffled(artifact)):
        assert np.array_equal(changed.tensors()["draft_ids"], toys.DRAFT_IDS)
        assert load_drafter(changed, toys.SOURCE, threads=1).max_depth == 3
    assert load_artifact(artifact.path).manifest == artifact.manifest  # its hashes are checked at load
