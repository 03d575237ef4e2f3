"""The whole engine on the CPU runtime: through any tree, batch and weight format, what plain decoding says.

Tiny random models of every family with a drafter that is right half of the time; the real model with its heads.
A first difference counts as none only where the two tokens are nearly tied in what the rule compares.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest

from bench_fakes import make_llm
from engine_fakes import LetterTokenizer, Prophet, answer
from medusakit.bench.equality import Difference, judge_difference
from medusakit.bench.workloads import load_suite
from medusakit.engine.controller import FixedController, PlainController
from medusakit.engine.engine import Engine
from medusakit.engine.plan import make_plan
from medusakit.llm import LLM
from medusakit.models.resolve import open_weights, resolve
from medusakit.runtimes.onnx.runtime import OnnxRuntime, load_onnx
from medusakit.settings import SamplingParams
from medusakit.tree.policy import StaticPolicy
from medusakit.tree.topology import Draft, Topology, Tree
from tiny import VARIANTS, write_hf

VOCAB, HIDDEN, ROWS = 128, 64, 3
FORMATS = ("f32", "int8", "int4")
TREE = Topology.from_rank_paths([(0,), (1,), (0, 0), (0, 1), (0, 0, 0), (1, 0), (2,), (0, 0, 0, 0)])
REQUESTS = {
    "greedy": SamplingParams(max_tokens=40, seed=1),
    "sampled": SamplingParams(max_tokens=40, temperature=0.8, seed=1),
    "sampled with penalties": SamplingParams(
        max_tokens=40, temperature=0.8, top_p=0.9, top_k=40, repetition_penalty=1.2, frequency_penalty=0.3, seed=1
    ),
}
random = np.random.default_rng(11)
PROMPTS = [random.integers(0, VOCAB, length).tolist() for length in (1, 7, 20)]


class RaggedPolicy(StaticPolicy):
    """At every step and row another number of nodes."""

    def __init__(self, topology: Topology, seed: int) -> None:
        super().__init__(topology)
        self._random = np.random.default_rng(seed)

    def select(self, drafts: Sequence[Draft], rooms: Sequence[int], context: int) -> list[Tree]:
        sizes = self._random.integers(1, self.shape.num_nodes + 1, len(rooms)).tolist()
        return super().select(drafts, [min(pair) for pair in zip(rooms, sizes, strict=True)], context)


@pytest.fixture(scope="module", params=VARIANTS)
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_hf(tmp_path_factory.mktemp("model") / "m", request.param, seed=3)


def load(folder: Path, weights: str) -> OnnxRuntime:
    source = open_weights(resolve(str(folder)))
    return load_onnx(
        source,
        weights=weights,
        threads=1,
        max_rows=ROWS,
        max_context=min(80, source.spec.context_length),
        cache_dir=folder / "graphs",
    )


def prophet(right: float) -> Prophet:
    return Prophet(right, vocab_size=VOCAB, hidden_size=HIDDEN)


def judged(
    runtime: OnnxRuntime, prompt: Sequence[int], left: Sequence[int], right: Sequence[int], params: SamplingParams
) -> Difference | None:
    return judge_difference(make_llm(runtime), "here", prompt, left, right, params)


@pytest.mark.parametrize("weights", FORMATS)
def test_trees_say_what_plain_decoding_says(folder: Path, weights: str) -> None:
    runtime = load(folder, weights)
    plain = Engine(runtime, LetterTokenizer(), PlainController())
    drafter = prophet(0.6)
    trees = Engine(
        runtime, LetterTokenizer(), FixedController(make_plan(drafter, RaggedPolicy(TREE, 0), TREE.num_nodes))
    )
    steps = tokens = 0
    for name, params in REQUESTS.items():
        for prompt in PROMPTS:
            expected = answer(plain, prompt, params)
            drafter.truths = dict.fromkeys(range(1000), [*prompt, *expected.token_ids])
            found = answer(trees, prompt, params)
            difference = judged(runtime, prompt, expected.token_ids, found.token_ids, params)
            assert difference is None or difference.tied, f"{name}: {difference}"
            steps, tokens = steps + found.stats.num_steps, tokens + found.stats.num_tokens
    assert steps < 0.8 * tokens, "hardly a drafted token was accepted, so nothing was tested"
    assert runtime.rows == ()


@pytest.mark.parametrize("weights", FORMATS)
def test_rows_that_join_and_leave_with_ragged_trees(folder: Path, weights: str) -> None:
    runtime = load(folder, weights)
    jobs = [(prompt, params) for params in REQUESTS.values() for prompt in PROMPTS]
    alone = [answer(Engine(runtime, LetterTokenizer(), PlainController()), *job) for job in jobs]
    drafter = prophet(0.6)
    plan = make_plan(drafter, RaggedPolicy(TREE, 1), TREE.num_nodes)
    engine = Engine(runtime, LetterTokenizer(), FixedController(plan))
    waiting, sessions, results = list(range(len(jobs))), {}, {}
    widest = 0
    while waiting or sessions:
        if waiting and len(runtime.rows) < ROWS:  # one joins a step, in the middle of the others
            job = waiting.pop(0)
            sessions[job] = engine.start(*jobs[job])
            drafter.truths[sessions[job].row] = [*jobs[job][0], *alone[job].token_ids]
        widest = max(widest, len(engine.active))
        engine.step()
        for job, session in list(sessions.items()):
            if not session.running:
                results[job] = session.result()
                engine.finish(sessions.pop(job))
    assert widest == ROWS
    for job, (prompt, params) in enumerate(jobs):
        difference = judged(runtime, prompt, alone[job].token_ids, results[job].token_ids, params)
        assert difference is None or difference.tied, f"job {job}: {difference}"


QUESTIONS = [question.turns[0] for question in load_suite("mt-bench", limit=4)]
REAL_REQUESTS = {
    "greedy": SamplingParams(max_tokens=48, seed=5),
    "sampled": SamplingParams(max_tokens=48, temperature=0.8, seed=5),
}
BUDGET = 16


@pytest.fixture(scope="module", params=FORMATS)
def smollm2(request: pytest.FixtureRequest) -> Iterator[LLM]:
    """The embedded model with its heads (MEDUSA_HEADS: others) and a tree that is verified whether it pays or not."""
    heads = os.environ.get("MEDUSA_HEADS", "auto")
    llm = LLM.load("smollm2", heads=heads, weights=request.param, budget=BUDGET, max_rows=2)
    assert llm.parts.speculation.drafter is not None, "no heads fit the embedded model"
    if llm.runtime.capabilities.exact != "bitwise-ties":
        pytest.skip(f"on this processor {request.param} decodes plainly (docs/decisions/0003)")
    yield llm
    llm.close()


def assert_same_answers(llm: LLM, ids: Sequence[int], params: SamplingParams) -> None:
    """Plain first; the tree starts from plain's KV of the prompt, as a chat's next turn does."""
    plain = Engine(llm.runtime, llm.tokenizer, PlainController())
    first = plain.start(ids, params)
    for _ in plain.run(first):
        pass
    expected = first.result()
    session = llm.engine.start(ids, params, plain.keep(first))
    for _ in llm.engine.run(session):
        pass
    found = session.result()
    llm.engine.finish(session)
    assert found.stats.num_reused_tokens == len(ids) - 1
    assert found.stats.num_steps < expected.stats.num_steps, "nothing was accepted, so nothing was tested"
    difference = judge_difference(llm, "here", ids, expected.token_ids, found.token_ids, params)
    assert difference is None or difference.tied, str(difference)


@pytest.mark.model
@pytest.mark.parametrize("request_name", REAL_REQUESTS)
def test_the_embedded_model_with_its_heads(smollm2: LLM, request_name: str) -> None:
    for question in QUESTIONS:
        assert_same_answers(smollm2, smollm2.encode(question), REAL_REQUESTS[request_name])


@pytest.mark.model
@pytest.mark.parametrize(
    "length", [1024, pytest.param(4096, marks=pytest.mark.slow), pytest.param(8192, marks=pytest.mark.slow)]
)
def test_long_contexts(smollm2: LLM, length: int) -> None:
    """A prompt of articles and a question about them, so long that the answer ends at `length`."""
    articles = [text for question in load_suite("spec-bench") for text in question.turns if len(text) > 2000]
    ids = smollm2.encode("\n\n".join([*articles[:12], "Summarise the first article."]))
    params = REAL_REQUESTS["greedy"]
    room = length - params.max_tokens
    assert len(ids) > room
    ids = [*ids[: room // 2], *ids[len(ids) - (room - room // 2) :]]  # the end holds the question and the answer's role
    assert_same_answers(smollm2, ids, params)
