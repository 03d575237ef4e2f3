"""Drafters without heads on the CPU runtime: rows together, then the real model, give what plain decoding gives."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from bench_fakes import make_llm
from engine_fakes import LetterTokenizer, answer
from medusakit.bench.equality import judge_difference
from medusakit.bench.workloads import load_suite
from medusakit.drafters.registry import HEADLESS, headless_drafter
from medusakit.engine.controller import FixedController, PlainController
from medusakit.engine.engine import Engine
from medusakit.engine.plan import make_plan
from medusakit.llm import LLM
from medusakit.models.resolve import open_weights, resolve
from medusakit.runtimes.onnx.runtime import load_onnx
from medusakit.settings import SamplingParams
from medusakit.tree.policy import DynamicPolicy
from tiny import write_hf

VOCAB, ROWS = 128, 3
REQUESTS = {
    "greedy": SamplingParams(max_tokens=40, seed=5),
    "sampled": SamplingParams(max_tokens=40, temperature=0.8, seed=5),
}


@pytest.mark.parametrize("request_name", REQUESTS)
@pytest.mark.parametrize("name", HEADLESS)
def test_rows_together_say_what_each_says_alone(tmp_path: Path, name: str, request_name: str) -> None:
    params = REQUESTS[request_name]
    source = open_weights(resolve(str(write_hf(tmp_path / "m", "llama", seed=3))))
    runtime = load_onnx(source, weights="f32", threads=1, max_rows=ROWS, max_context=80, cache_dir=tmp_path / "graphs")
    prompts = np.random.default_rng(2).integers(0, VOCAB, (ROWS, 9)).tolist()
    plain = Engine(runtime, LetterTokenizer(), PlainController())
    alone = [answer(plain, prompt, params) for prompt in prompts]
    drafter, beam = headless_drafter(name, vocab_size=VOCAB)
    plan = make_plan(drafter, DynamicPolicy(beam), 12)
    engine = Engine(runtime, LetterTokenizer(), FixedController(plan))
    for _ in range(2):  # what the first round taught drafts the second
        sessions = [engine.start(prompt, params) for prompt in prompts]
        while any(session.running for session in sessions):
            engine.step()
        for session in sessions:
            engine.finish(session)
    for prompt, one, session in zip(prompts, alone, sessions, strict=True):
        difference = judge_difference(make_llm(runtime), name, prompt, one.token_ids, session.output_ids, params)
        assert difference is None or difference.tied, str(difference)
    drafted = sum(session.stats.num_nodes - session.stats.num_steps for session in sessions)
    assert drafted > 0, "nothing was drafted, so nothing was tested"


@pytest.mark.model
def test_the_embedded_model_as_its_own_draft_model() -> None:
    """In 8 bits it drafts for itself in float32: nearly everything is accepted, and the answer is the same."""
    llm = LLM.load("smollm2", weights="f32", drafter="draft_model", draft_model="smollm2", budget=8)
    prompt = load_suite("spec-bench", limit=4)[2].turns[0]
    for params in REQUESTS.values():
        plain = llm.generate(prompt, params, speculation=False)
        found = llm.generate(prompt, params)
        difference = judge_difference(llm, "draft_model", llm.encode(prompt), plain.token_ids, found.token_ids, params)
        assert difference is None or difference.tied, str(difference)
        assert found.stats.tau > 1.8
    llm.close()


@pytest.mark.model
@pytest.mark.parametrize("name", [*HEADLESS, "hybrid"])
def test_the_embedded_model(name: str) -> None:
    llm = LLM.load("smollm2", weights="f32", drafter=name, budget=8)
    prompt = load_suite("spec-bench", limit=4)[2].turns[0]
    for params in REQUESTS.values():
        plain = llm.generate(prompt, params, speculation=False)
        found = llm.generate(prompt, params)
        difference = judge_difference(llm, name, llm.encode(prompt), plain.token_ids, found.token_ids, params)
        assert difference is None or difference.tied, str(difference)
        assert sum(found.stats.accepted_by_depth) > 0, "nothing was accepted, so nothing was tested"
    llm.close()
