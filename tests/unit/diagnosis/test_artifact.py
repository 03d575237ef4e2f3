"""Every fault that heads can have is planted into heads trained for a moment, and found under its name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fakes import ByteTokenizer
from medusakit.artifact.io import Artifact, load_artifact, save_artifact
from medusakit.artifact.rope import TurnedSource, aligned, recorded_rope, rope_record
from medusakit.artifact.schema import Backbone, CalibratedTree, DrafterConfig, Provenance, TreeNode
from medusakit.diagnosis.artifact import ANSWER_TOKENS, Case, _shift, diagnose
from medusakit.diagnosis.findings import Finding
from medusakit.diagnosis.guesses import SHIFTS, Guesses, Trace, answer
from medusakit.drafters.medusa.config import MedusaParams
from medusakit.drafters.medusa.torch import MedusaNet
from medusakit.drafters.rows import rms_normalised
from medusakit.errors import ArtifactError
from medusakit.models.spec import RopeSpec, WeightSource
from medusakit.runtimes.reference import ReferenceRuntime
from medusakit.runtimes.reference_source import ArraySource, random_source
from medusakit.tree.topology import FloatArray

torch.set_num_threads(1)
VOCAB, SIZE, DEPTH = 258, 32, 2
CONFIG = DrafterConfig(family="medusa", depth=DEPTH, draft_vocab_size=VOCAB, params={"blocks": 2})
PROMPTS = [np.random.default_rng(seed).integers(0, 250, 6).tolist() for seed in range(8)]
Tensors = dict[str, np.ndarray[Any, Any]]


def make_source() -> ArraySource:
    """A norm of very different weights, so that its two sides point in different directions."""
    source = random_source(11, VOCAB, hidden_size=SIZE)
    source.arrays["final_norm"] *= np.exp(np.random.default_rng(0).normal(0, 0.8, SIZE)).astype(np.float32)
    return source


SOURCE = make_source()


def coarse(source: WeightSource) -> ArraySource:
    """The same model in a format that keeps hardly more than the signs."""
    arrays = {
        name: np.sign(value) * np.abs(value).mean() if value.ndim == 2 else value
        for name, value in SOURCE.arrays.items()
    }
    return ArraySource(source.spec, {name: value.astype(np.float32) for name, value in arrays.items()}, "coarse")


def open_runtime(source: WeightSource, weights: str = "f32", rope: RopeSpec | None = None) -> ReferenceRuntime:
    stored = coarse(source) if weights == "int4" else source
    return ReferenceRuntime(stored if rope is None else TurnedSource(stored, rope), dtype=np.float32)


def traces_of(source: WeightSource = SOURCE) -> list[Trace]:
    return answer(open_runtime(source), PROMPTS, ByteTokenizer.eos_ids, ANSWER_TOKENS)


def trained(
    traces: list[Trace], *, shift: int = 0, change: Callable[[FloatArray], FloatArray] | None = None, blocks: int = 2
) -> Tensors:
    """Heads whose head k was trained to say the token `shift` after the one it should say."""
    torch.manual_seed(0)
    net = MedusaNet(MedusaParams(blocks=blocks), DEPTH, SIZE)
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.add_(0.02 * torch.randn_like(parameter))
    projection = torch.from_numpy(SOURCE.arrays["lm_head"])
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
    hidden, labels = [], []
    for trace in traces:
        states = trace.hidden if change is None else change(trace.hidden)
        for place in range(1, len(trace.gen) - DEPTH - shift):
            hidden.append(states[place])
            labels.append([trace.gen[place + 1 + head + shift] for head in range(DEPTH)])
    x, y = torch.from_numpy(np.stack(hidden))[None], torch.tensor(labels)
    rows = (torch.zeros(len(y), dtype=torch.int64), torch.arange(len(y)))
    for _ in range(150):
        outs = list(net(x, x, rows))
        loss = sum(torch.nn.functional.cross_entropy(out @ projection.T, y[:, head]) for head, out in enumerate(outs))
        optimizer.zero_grad()
        loss.backward()  # type: ignore[union-attr]
        optimizer.step()
    return {name: value.detach().numpy() for name, value in net.state_dict().items()}


@dataclass
class Patient:
    """Healthy heads, into which a test plants one fault."""

    folder: Path
    tensors: Tensors
    source: WeightSource = SOURCE
    rope: RopeSpec | None = None
    weights: str = "f32"
    params: dict[str, Any] = field(default_factory=lambda: {"blocks": 2})
    backbone: Backbone = Backbone(
        name="toy", fingerprint=SOURCE.fingerprint, hidden_size=SIZE, vocab_size=VOCAB, tokenizer_hash="bytes"
    )
    ids: np.ndarray[Any, Any] | None = None
    calibrated: float = 0.8

    def artifact(self) -> Artifact:
        recipe: dict[str, Any] = {} if self.rope is None else {"rope": rope_record(self.rope)}
        ids = np.arange(VOCAB) if self.ids is None else self.ids
        return save_artifact(
            self.folder / "heads",
            backbone=self.backbone,
            drafter=CONFIG.model_copy(update={"draft_vocab_size": len(ids), "params": self.params}),
            tree=CalibratedTree(nodes=(TreeNode(path=(0,), acceptance=self.calibrated),), num_positions=100),
            tensors={**self.tensors, "draft_ids": ids.astype(np.int32)},
            provenance=Provenance(created="now", medusakit="0", recipe=recipe),
        )

    def findings(self) -> dict[str, Finding]:
        source = self.source
        case = Case(
            self.artifact(),
            source,
            ByteTokenizer(),  # type: ignore[arg-type]
            PROMPTS,
            lambda weights, rope: open_runtime(source, weights, rope),
            self.weights,
        )
        return {finding.code: finding for finding in diagnose(case)}

    def faults(self) -> set[str]:
        found = self.findings().values()
        assert all(finding.evidence and (finding.remedy or finding.severity == "info") for finding in found)
        return {finding.code for finding in found if finding.severity != "info" and finding.code != "acceptance"}


@pytest.fixture(scope="module")
def healthy() -> Tensors:
    return trained(traces_of())


@pytest.fixture
def patient(tmp_path: Path, healthy: Tensors) -> Patient:
    return Patient(tmp_path, {name: value.copy() for name, value in healthy.items()})


def test_healthy_heads_have_no_fault(patient: Patient) -> None:
    found = patient.findings()
    assert [finding.severity for finding in found.values()] == ["info"]
    assert "80% were calibrated" in found["acceptance"].evidence


@pytest.mark.parametrize("shift", [-1, 1, 2])
def test_heads_that_are_off(patient: Patient, shift: int) -> None:
    patient.tensors = trained(traces_of(), shift=shift)
    found = patient.findings()
    assert patient.faults() == {"head-shift"}
    assert f"{shift:+d}" in found["head-shift"].evidence and f"{-shift:+d}" in found["head-shift"].remedy


def test_heads_that_repeat_the_root_as_they_were_calibrated_have_learnt_too_little(patient: Patient) -> None:
    patient.tensors, patient.calibrated = trained(traces_of(), shift=-1), 0.03
    found = patient.findings()
    assert patient.faults() == {"untrained"}
    assert "repeat the token before" in found["untrained"].evidence and "more answers" in found["untrained"].remedy


def test_weak_heads_that_are_off_are_told_from_those_that_repeat_the_root() -> None:
    """As the packaged medusa heads say when their first head is lost: right about the one after at an eighth of the
    places, as often only the root again, as weak heads do."""
    rates, num, last = {-1: 0.128, 0: 0.048, 1: 0.125, 2: 0.05}, 376, 0
    around = np.zeros((num, len(SHIFTS)), np.int64)
    for column, shift in enumerate(SHIFTS):
        first, last = last, last + round(rates[shift] * num)
        around[first:last, column] = 1
    (found,) = _shift(Guesses(np.ones(num, np.int64), around))
    assert found.code == "head-shift" and "token at +1 at 12%" in found.evidence


def test_states_before_the_norm(patient: Patient) -> None:
    """What enters the norm has lengths of its own, which its result does not tell."""
    weight, rng = SOURCE.arrays["final_norm"], np.random.default_rng(1)

    def before(hidden: FloatArray) -> FloatArray:
        lengths = 6 * rng.uniform(0.85, 1.15, (len(hidden), 1))
        return np.asarray(rms_normalised(hidden / weight) * lengths, np.float32)

    patient.tensors = trained(traces_of(), change=before)
    assert patient.faults() == {"norm-side"}
    assert "before the final norm" in patient.findings()["norm-side"].evidence


def test_states_normalised_twice(patient: Patient) -> None:
    def twice(hidden: FloatArray) -> FloatArray:
        return np.asarray(rms_normalised(hidden) * SOURCE.arrays["final_norm"], np.float32)

    patient.tensors = trained(traces_of(), change=twice)
    assert patient.faults() == {"norm-side"}


def test_biases_that_were_lost(patient: Patient) -> None:
    for block in range(2):
        patient.tensors[f"blocks.{block}.bias"][:] = 0
    assert "missing-biases" in patient.faults()
    del patient.tensors["blocks.0.bias"]
    assert patient.faults() == {"missing-biases"}


def test_one_bias_of_one_head(patient: Patient) -> None:
    patient.tensors["blocks.0.bias"][1] = 0
    assert "blocks.0.bias of heads 1" in patient.findings()["missing-biases"].evidence


def test_heads_that_were_never_trained(patient: Patient) -> None:
    patient.tensors = {name: np.zeros_like(value) for name, value in patient.tensors.items()}
    assert patient.faults() == {"untrained"}


def test_heads_of_random_numbers(patient: Patient) -> None:
    rng = np.random.default_rng(2)
    patient.tensors = {name: rng.standard_normal(value.shape) for name, value in patient.tensors.items()}
    assert patient.faults() == {"untrained"}


def test_blocks_that_are_one_module(patient: Patient) -> None:
    patient.tensors["blocks.1.weight"] = patient.tensors["blocks.0.weight"]
    assert "tied-blocks" in patient.faults()


def test_heads_that_are_one_module(patient: Patient) -> None:
    patient.tensors["blocks.0.weight"][1] = patient.tensors["blocks.0.weight"][0]
    assert "heads 0 and 1" in patient.findings()["tied-blocks"].evidence


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"tokenizer_hash": "other"}, "tokenizer"),
        ({"fingerprint": "ff" * 32}, "base-revision"),
        ({"vocab_size": VOCAB + 2}, "vocabulary"),
        ({"hidden_size": SIZE + 1}, "hidden-size"),
    ],
)
def test_heads_of_another_model(patient: Patient, change: dict[str, Any], code: str) -> None:
    patient.backbone = patient.backbone.model_copy(update=change)
    assert patient.faults() == {code}


def test_draft_ids_of_another_tokenizer(patient: Patient) -> None:
    """Ids that the answers hardly use."""
    said = {token for trace in traces_of() for token in trace.gen}
    unused = np.array([token for token in range(VOCAB) if token not in said])
    patient.ids = unused
    assert patient.faults() == {"vocabulary"}
    assert "holds 0% of" in patient.findings()["vocabulary"].evidence


def test_ids_that_moved(patient: Patient) -> None:
    """Rows of heads with projections of their own keep their order, but two tokens were put in front."""
    rows = SOURCE.arrays["lm_head"][: VOCAB - 2]
    patient.tensors["projection"] = np.repeat(rows[None], DEPTH, axis=0)
    patient.params["projection"] = "own"
    patient.ids = np.arange(2, VOCAB)
    assert patient.faults() == {"vocabulary"}
    assert "off by +2" in patient.findings()["vocabulary"].evidence


def turned(theta: float) -> WeightSource:
    return TurnedSource(SOURCE, RopeSpec(theta, SOURCE.spec.rope.dim))


def test_positions_that_differ_from_the_record(patient: Patient) -> None:
    patient.source, patient.rope = turned(3.0), SOURCE.spec.rope
    found = patient.findings()
    assert {"position"} <= patient.faults()
    assert "--align-position-embed" in found["position"].remedy
    patient.source = aligned(patient.source, load_artifact(patient.folder / "heads"))
    assert patient.faults() == set()


def test_positions_that_nobody_recorded(patient: Patient) -> None:
    patient.source = turned(3.0)
    assert patient.faults() == {"position"}
    assert "rope_theta = 10000" in patient.findings()["position"].remedy
    with pytest.raises(ArtifactError, match="record no positions"):
        aligned(patient.source, load_artifact(patient.folder / "heads"))


def test_a_record_that_cannot_be_read(patient: Patient) -> None:
    artifact = patient.artifact()
    recipe = {"rope": {"base": 3}}
    provenance = artifact.manifest.provenance.model_copy(update={"recipe": recipe})
    broken = replace(artifact, manifest=artifact.manifest.model_copy(update={"provenance": provenance}))
    with pytest.raises(ArtifactError, match="rope cannot be read"):
        recorded_rope(broken)


def test_a_format_that_costs_too_much(patient: Patient) -> None:
    patient.weights = "int4"
    found = patient.findings()
    assert found["quantisation-gap"].severity == "warning"
    assert "--weights f32" in found["quantisation-gap"].remedy
