"""Heads on the runtime's device: the drafts of the CPU drafters, brought by the step where it goes on as expected."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from device_fakes import prepared
from drafter_toys import DRAFT_IDS, HYDRA, MEDUSA, OWN_MEDUSA, SIZE, SOURCE, VOCAB, random_net, tensors_of
from fakes import ByteTokenizer
from medusakit.artifact.schema import DrafterConfig
from medusakit.drafters.base import DraftState
from medusakit.drafters.device import DeviceDraft
from medusakit.drafters.hybrid.drafter import HybridDrafter, Source
from medusakit.drafters.registry import trained_drafter
from medusakit.engine.controller import FixedController, PlainController
from medusakit.engine.engine import Engine
from medusakit.engine.plan import make_plan
from medusakit.runtimes.torch.device.runtime import DeviceRuntime
from medusakit.settings import SamplingParams
from medusakit.tree.policy import DynamicPolicy
from medusakit.tree.topology import Beam, Topology
from recorded import Recording

BEAM = Beam((4, 3, 2), 5)
FAMILIES = pytest.mark.parametrize("config", [MEDUSA, OWN_MEDUSA, HYDRA], ids=["medusa", "own", "hydra"])


def backbone(recording: Recording | None = None, max_rows: int = 3) -> DeviceRuntime:
    """A model that shares embedding and LM head with the toy source."""
    torch.manual_seed(3)
    config = AutoConfig.for_model(
        "llama", vocab_size=VOCAB, hidden_size=SIZE, intermediate_size=24, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=2, max_position_embeddings=256,
    )  # fmt: skip
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(6 if parameter.dim() > 1 else 1)
        model.get_input_embeddings().weight.copy_(torch.from_numpy(SOURCE.arrays["embed"]))
        model.get_output_embeddings().weight.copy_(torch.from_numpy(SOURCE.arrays["lm_head"]))
    return prepared(model, recording, max_rows=max_rows)


def drafters(config: DrafterConfig, runtime: DeviceRuntime) -> tuple[Any, Any]:
    """On the device, and on the CPU in float32."""
    tensors = tensors_of(random_net(config))
    ours = trained_drafter(config, tensors, SOURCE, threads=1, quantised=False, runtime=runtime)
    assert type(ours).__name__.startswith("Device")
    return ours, trained_drafter(config, tensors, SOURCE, threads=1, quantised=False)


def states(count: int) -> list[DraftState]:
    random = np.random.default_rng(2)
    hidden = random.standard_normal((count, SIZE)).astype(np.float32)
    return [DraftState(row, int(DRAFT_IDS[row]), hidden[row], [1, int(DRAFT_IDS[row])]) for row in range(count)]


@FAMILIES
@pytest.mark.parametrize("shape", [BEAM, Beam((2, 2), 3), Topology.dense([3, 2])])
def test_they_guess_what_the_cpu_guesses(config: DrafterConfig, shape: Any) -> None:
    ours, theirs = drafters(config, backbone(Recording()))
    for count in (1, 3, 1):
        for found, expected in zip(
            ours.propose(states(count), shape), theirs.propose(states(count), shape), strict=True
        ):
            np.testing.assert_array_equal(found.topology.parents, expected.topology.parents)
            np.testing.assert_array_equal(found.topology.ranks, expected.topology.ranks)
            np.testing.assert_array_equal(found.tokens, expected.tokens)
            np.testing.assert_allclose(found.logprobs, expected.logprobs, atol=1e-4)


def test_more_guesses_than_are_kept_come_from_the_cpu() -> None:
    ours, theirs = drafters(MEDUSA, backbone())
    wide = Topology.dense([20])
    np.testing.assert_array_equal(ours.propose(states(1), wide)[0].tokens, theirs.propose(states(1), wide)[0].tokens)


def decoded(runtime: DeviceRuntime, drafter: Any, params: SamplingParams, rows: int = 1) -> list[list[int]]:
    hybrid = HybridDrafter([Source(drafter, BEAM, costly=True)])
    plan = make_plan(hybrid, DynamicPolicy(BEAM), 8)
    engine = Engine(runtime, ByteTokenizer(), FixedController(plan))
    sessions = [engine.start([7, 3, 9 + row], params) for row in range(rows)]
    while any(session.running for session in sessions):
        engine.step()
    for session in sessions:
        engine.finish(session)
    return [list(session.output_ids) for session in sessions]


@FAMILIES
@pytest.mark.parametrize("rows", [1, 3])
def test_a_greedy_answer_asks_for_a_draft_once(
    config: DrafterConfig, rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the prompt; from then on every step brings the next draft, and the answer is that of plain decoding."""
    runtime, alone = backbone(Recording()), []
    drafter, _ = drafters(config, runtime)
    own = DeviceDraft._drafted
    monkeypatch.setattr(DeviceDraft, "_drafted", lambda draft, given: alone.append(len(given)) or own(draft, given))
    params = SamplingParams(max_tokens=24, ignore_eos=True)
    found = decoded(runtime, drafter, params, rows)
    assert alone == [rows]
    other = backbone()
    engine = Engine(other, ByteTokenizer(), PlainController())
    for row, ids in enumerate(found):
        session = engine.start([7, 3, 9 + row], params)
        for _ in engine.run(session):
            pass
        engine.finish(session)
        assert ids == list(session.output_ids)


def test_drafts_of_the_step_are_those_of_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every draft of a whole answer, by what the CPU drafter says of the same states."""
    runtime = backbone(Recording())
    ours, theirs = drafters(HYDRA, runtime)
    own, seen = type(ours).propose, []

    def both(drafter: Any, given: Any, shape: Any) -> Any:
        drafts = own(drafter, given, shape)
        for found, expected in zip(drafts, theirs.propose(given, BEAM), strict=True):
            np.testing.assert_array_equal(found.tokens, expected.tokens)
            seen.append(found)
        return drafts

    monkeypatch.setattr(type(ours), "propose", both)
    decoded(runtime, ours, SamplingParams(max_tokens=20, ignore_eos=True))
    assert len(seen) > 5


def test_sampling_drafts_by_itself_where_it_left_the_greedy_path(monkeypatch: pytest.MonkeyPatch) -> None:
    runtime, alone = backbone(Recording()), []
    drafter, _ = drafters(MEDUSA, runtime)
    own = DeviceDraft._drafted
    monkeypatch.setattr(DeviceDraft, "_drafted", lambda draft, given: alone.append(len(given)) or own(draft, given))
    params = SamplingParams(max_tokens=40, temperature=1.5, seed=5, ignore_eos=True)
    found = decoded(runtime, drafter, params)[0]
    assert len(alone) > 5
    engine = Engine(backbone(), ByteTokenizer(), PlainController())
    session = engine.start([7, 3, 9], params)
    for _ in engine.run(session):
        pass
    assert found == list(session.output_ids)


def test_heads_that_are_swapped_out_make_room_for_the_next() -> None:
    runtime = backbone(Recording())
    first, _ = drafters(MEDUSA, runtime)
    params = SamplingParams(max_tokens=6, ignore_eos=True)
    expected = decoded(runtime, first, params)
    second, _ = drafters(HYDRA, runtime)
    decoded(runtime, second, params)  # the first still has the place
    before = len(runtime.graphs)
    del first
    gc.collect()
    assert decoded(runtime, second, params) == expected
    assert before and runtime.attach(second._drafts[(5, (4, 3, 2))]._reader)
