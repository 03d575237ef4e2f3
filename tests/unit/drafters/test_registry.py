"""From an artifact on disk to a drafter that runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from drafter_toys import (
    CNN_LSTM,
    CONTEXT,
    HYDRA,
    MEDUSA,
    SIZE,
    SOURCE,
    SSM,
    VOCAB,
    answer,
    random_net,
    state_at,
    tensors_of,
)
from medusakit.artifact.io import Artifact, save_artifact
from medusakit.artifact.schema import Backbone, CalibratedTree, DrafterConfig, Provenance, TreeNode
from medusakit.drafters.base import Drafter
from medusakit.drafters.registry import load_drafter
from medusakit.errors import ArtifactError


def saved(folder: Path, config: DrafterConfig, **changed: object) -> Artifact:
    tensors = {**tensors_of(random_net(config)), **changed}
    return save_artifact(
        folder,
        backbone=Backbone(name="toy", fingerprint=SOURCE.fingerprint, hidden_size=SIZE, vocab_size=VOCAB),
        drafter=config,
        tree=CalibratedTree(nodes=(TreeNode(path=(0,), acceptance=0.5),), num_positions=1),
        tensors={name: value for name, value in tensors.items() if value is not None},
        provenance=Provenance(created="today", medusakit="0"),
    )


@pytest.mark.parametrize("config", [HYDRA, MEDUSA, CONTEXT, CNN_LSTM, SSM], ids=lambda config: config.family)
def test_a_saved_drafter_guesses(tmp_path: Path, config: DrafterConfig) -> None:
    artifact = saved(tmp_path / "heads", config)
    drafter = load_drafter(artifact, SOURCE, threads=1)
    assert isinstance(drafter, Drafter)
    assert (drafter.name, drafter.max_depth) == (config.family, config.depth)
    ids, hidden = answer(3)
    draft = drafter.propose([state_at(1, ids, hidden)], artifact.topology(2))[0]
    assert draft.tokens[0] == ids[2]
    assert draft.logprobs[1] <= 0


def test_what_does_not_fit_is_named(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match="tensor w_out is missing"):
        load_drafter(saved(tmp_path / "a", HYDRA, w_out=None), SOURCE)
    wrong = tensors_of(random_net(HYDRA))["w_out"][:, :-1]
    with pytest.raises(ArtifactError, match=r"w_out has shape \[16, 23\]"):
        load_drafter(saved(tmp_path / "b", HYDRA, w_out=wrong), SOURCE)
    unknown = HYDRA.model_copy(update={"family": "oracle"})
    artifact = saved(tmp_path / "c", HYDRA)
    manifest = artifact.manifest.model_copy(update={"drafter": unknown})
    with pytest.raises(ArtifactError, match="'oracle'"):
        load_drafter(Artifact(artifact.path, manifest, artifact.tree), SOURCE)
