"""Trained drafters of every family on the CPU runtime: the output is plain decoding's, and in use they say what the
torch module says that was trained and calibrated.

A tiny random model answers, drafters are trained on its answers for a second, and then draft for it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
import torch

from bench_fakes import make_llm
from engine_fakes import LetterTokenizer, answer
from medusakit.artifact.schema import Backbone
from medusakit.bench.equality import judge_difference
from medusakit.drafters.base import DraftState
from medusakit.drafters.registry import FAMILIES, trained_drafter
from medusakit.engine.controller import FixedController, PlainController
from medusakit.engine.engine import Engine
from medusakit.engine.plan import PLAIN_PLAN, Plan, make_plan
from medusakit.engine.session import Session
from medusakit.models.resolve import open_weights, resolve
from medusakit.models.spec import WeightSource
from medusakit.runtimes.onnx.runtime import OnnxRuntime, load_onnx
from medusakit.settings import SamplingParams
from medusakit.train.dataset import Dataset, ShardWriter
from medusakit.train.heads import TrainedHeads, train_heads
from medusakit.train.heads_config import HeadsConfig
from medusakit.train.heads_data import make_batch
from medusakit.train.loop import depths_of
from medusakit.train.manifest import DatasetManifest
from medusakit.train.shards import Sample
from medusakit.tree.policy import DynamicPolicy, StaticPolicy
from medusakit.tree.topology import Beam, Draft, FloatArray, Shape, Topology
from tiny import write_hf

VOCAB, HIDDEN, ROWS, LENGTH = 128, 64, 3, 32
TREE = Topology.from_rank_paths([(0,), (1,), (0, 0), (0, 1), (0, 0, 0), (1, 0), (2,)])
PARAMS = {
    "medusa": {},
    "hydra": {"inner": 64},
    "context": {"inner": 64, "heads": 1, "window": 24},
    "cnn_lstm": {"cell": 48, "window": 3},
    "ssm": {"memory": 64},
}
REQUESTS = {
    "greedy": SamplingParams(max_tokens=LENGTH, seed=1),
    "sampled": SamplingParams(max_tokens=LENGTH, temperature=0.8, seed=1),
}


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> WeightSource:
    return open_weights(resolve(str(write_hf(tmp_path_factory.mktemp("model") / "m", "llama", seed=3))))


@pytest.fixture(scope="module")
def runtime(source: WeightSource, tmp_path_factory: pytest.TempPathFactory) -> OnnxRuntime:
    graphs = tmp_path_factory.mktemp("graphs")
    return load_onnx(source, weights="f32", threads=1, max_rows=ROWS, max_context=80, cache_dir=graphs)


@pytest.fixture(scope="module")
def dataset(runtime: OnnxRuntime, tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """The model's greedy answers to random prompts, with its hidden states."""
    folder, rng = tmp_path_factory.mktemp("set"), np.random.default_rng(0)
    backbone = Backbone(name="tiny", fingerprint="0" * 64, hidden_size=HIDDEN, vocab_size=VOCAB)
    engine = Engine(runtime, LetterTokenizer(), PlainController())
    with ShardWriter(folder, DatasetManifest(backbone=backbone, seed=0, settings={})) as writer:
        for group in range(30):
            prompt = rng.integers(0, VOCAB, 6).tolist()
            ids = [*prompt, *answer(engine, prompt, REQUESTS["greedy"]).token_ids]
            row = runtime.add_row()
            hidden = runtime.hidden_states(row, ids[:-1])[len(prompt) - 1 :].astype(np.float16)
            runtime.drop_row(row)
            writer.add(Sample(np.array(ids, np.int32), len(prompt), hidden, group))
    return Dataset([folder])


@pytest.fixture(scope="module", params=FAMILIES)
def trained(
    request: pytest.FixtureRequest, dataset: Dataset, source: WeightSource, tmp_path_factory: pytest.TempPathFactory
) -> TrainedHeads:
    torch.set_num_threads(1)
    config = HeadsConfig(
        family=request.param, depth=3, params=PARAMS[request.param], draft_vocab=0, epochs=16, batch_rows=200,
        warmup_steps=2, learning_rate=5e-3, dropout=0.0, averaging=0.0, held_out=0.1, bf16=False,
    )  # fmt: skip
    return train_heads(dataset, source, config, tmp_path_factory.mktemp(request.param))


class Alternating(FixedController):
    """A static tree, one that is grown anew, and now and then a plain step, of which the drafter sees nothing."""

    def __init__(self, plans: Sequence[Plan]) -> None:
        super().__init__(plans[0])
        self._plans, self._step = [*plans * 3, PLAIN_PLAN], 0

    def plan(self, sessions: Sequence[Session]) -> Plan:
        self._step += 1
        return self._plans[self._step % len(self._plans)]

    def forget(self, row: int) -> None:
        for plan in self._plans:
            plan.drafter.forget(row)


@pytest.mark.parametrize("request_name", REQUESTS)
def test_rows_together_say_what_plain_decoding_says(
    runtime: OnnxRuntime, source: WeightSource, trained: TrainedHeads, request_name: str
) -> None:
    params = REQUESTS[request_name]
    drafter = trained_drafter(trained.config, trained.tensors(), source, threads=1)
    plans = [
        make_plan(drafter, policy, TREE.num_nodes) for policy in (StaticPolicy(TREE), DynamicPolicy(Beam((3, 3, 2), 4)))
    ]
    prompts = np.random.default_rng(5).integers(0, VOCAB, (6, 6)).tolist()
    plain = Engine(runtime, LetterTokenizer(), PlainController())
    alone = [answer(plain, prompt, params) for prompt in prompts]
    engine, waiting, sessions, results = Engine(runtime, LetterTokenizer(), Alternating(plans)), [*range(6)], {}, {}
    while waiting or sessions:
        if waiting and len(sessions) < ROWS:  # rows join and leave in the middle of the others
            job = waiting.pop(0)
            sessions[job] = engine.start(prompts[job], params)
        engine.step()
        for job in [job for job, session in sessions.items() if not session.running]:
            results[job] = sessions[job].result()
            engine.finish(sessions.pop(job))
    for job, prompt in enumerate(prompts):
        found = results[job].token_ids
        difference = judge_difference(make_llm(runtime), "here", prompt, alone[job].token_ids, found, params)
        assert difference is None or difference.tied, f"job {job}: {difference}"
    accepted = sum(sum(result.stats.accepted_by_depth) for result in results.values())
    assert accepted > 20, "hardly a drafted token was accepted, so nothing was tested"


class Recorder:
    """Hands every call on, and keeps what was drafted where."""

    def __init__(self, drafter: object) -> None:
        self._drafter, self.name, self.max_depth = drafter, "recorder", 3
        self.drafts: list[tuple[int, Draft]] = []

    def propose(self, states: Sequence[DraftState], shape: Shape) -> list[Draft]:
        drafts = self._drafter.propose(states, shape)
        self.drafts.extend((len(state.ids), draft) for state, draft in zip(states, drafts, strict=True))
        return drafts

    def observe(self, row: int, kept_ids: Sequence[int], hidden: FloatArray) -> None:
        self._drafter.observe(row, kept_ids, hidden)

    def forget(self, row: int) -> None:
        self._drafter.forget(row)


def test_in_use_it_says_what_the_torch_module_says(
    runtime: OnnxRuntime, source: WeightSource, trained: TrainedHeads, dataset: Dataset
) -> None:
    """Calibration measures the torch module along stored answers; the engine must meet the same drafter."""
    sample = max(dataset, key=lambda sample: sample.num_generated)
    recorder = Recorder(trained_drafter(trained.config, trained.tensors(), source, threads=1, quantised=False))
    prompt = sample.ids[: sample.prompt_len].tolist()

    always = FixedController(make_plan(recorder, StaticPolicy(TREE), TREE.num_nodes))
    found = answer(Engine(runtime, LetterTokenizer(), always), prompt, REQUESTS["greedy"])
    assert found.token_ids == tuple(sample.gen.tolist())
    depth = next(iter(depths_of(trained.net, make_batch([sample]), trained.backdrop)))
    own = getattr(trained.net, "projection", None)
    rows = trained.backdrop.head if own is None else own[0]
    expected = torch.log_softmax(depth.states @ rows.T, -1).max(-1).values.numpy()
    assert len(recorder.drafts) > 5
    for length, draft in recorder.drafts:
        place = length - sample.prompt_len - 1  # row of the answer whose root is the last id
        if place < len(expected):
            assert draft.logprobs[1] == pytest.approx(float(expected[place]), abs=5e-3)
