"""Prepared passes (padded, in place, replayed like a CUDA graph) say what the dynamic torch runtime says: greedy and
sampled, several rows at once, any tree, in every family.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from device_fakes import prepared
from fakes import ByteTokenizer
from medusakit.engine.controller import FixedController, PlainController
from medusakit.engine.engine import Engine
from medusakit.engine.plan import make_plan
from medusakit.runtimes.torch.device.packed import PackedScores
from medusakit.runtimes.torch.load import torch_parts
from medusakit.tree.policy import StaticPolicy
from medusakit.tree.topology import Topology, Tree
from recorded import Recording
from torch_families import FAMILIES, SETTINGS, Oracle, answer, controllers, model_of, prompt_of, same_but_for_ties

NOT_CAPTURED = {"falcon"}  # its attention makes tensors from numbers: called as it is


@pytest.mark.parametrize("family", FAMILIES)
def test_replayed_steps_say_what_plain_decoding_says(family: str) -> None:
    recording = Recording()
    runtime, dynamic = prepared(model_of(family), recording), torch_parts(model_of(family)).runtime
    for params in SETTINGS:
        prompt = prompt_of(len(family))
        plain, session = answer(dynamic, PlainController(), prompt, params)
        found, _ = answer(runtime, PlainController(), prompt, params)
        assert same_but_for_ties(dynamic, session, prompt, found, plain)
        for controller in controllers([*prompt, *plain], 258, True)[::3]:  # a wide tree, and trees grown anew
            found, _ = answer(runtime, controller, prompt, params)
            assert same_but_for_ties(dynamic, session, prompt, found, plain)
    if family in NOT_CAPTURED:
        assert "cannot be captured" in runtime.capabilities.eager
    else:
        assert runtime.capabilities.eager == "" and recording.num_replays > 4 * recording.num_captures > 0


@pytest.mark.parametrize("family", ["llama", "mistral", "gemma3_text", "gpt2", "qwen3_moe"])
def test_several_rows_at_once(family: str) -> None:
    """Three answers in one batch, each with its own tree and rule; one leaves, another takes its slot."""
    model = model_of(family)
    dynamic, runtime = torch_parts(model).runtime, prepared(model, Recording(), max_rows=3)
    prompts = [prompt_of(seed, 5 + 3 * seed) for seed in range(4)]
    alone = [answer(dynamic, PlainController(), prompt, SETTINGS[i % 2]) for i, prompt in enumerate(prompts)]
    told = Told({tuple(prompt): ids for prompt, (ids, _) in zip(prompts, alone, strict=True)})
    shape = Topology.dense([3, 2, 1])
    engine = Engine(runtime, ByteTokenizer(), FixedController(make_plan(told, StaticPolicy(shape), shape.num_nodes)))
    sessions = [engine.start(prompt, SETTINGS[i % 2]) for i, prompt in enumerate(prompts[:3])]
    for _ in engine.run(sessions[1]):
        pass
    engine.finish(sessions[1])
    sessions.append(engine.start(prompts[3], SETTINGS[1]))
    for session in (sessions[0], sessions[2], sessions[3]):
        for _ in engine.run(session):
            pass
    for prompt, session, (plain, reference) in zip(prompts, sessions, alone, strict=True):
        assert same_but_for_ties(dynamic, reference, prompt, list(session.output_ids), plain)


class Told(Oracle):
    """An oracle for several texts, each known by its prompt."""

    def __init__(self, answers: dict[tuple[int, ...], list[int]]) -> None:
        super().__init__([])
        self._answers = answers

    def _draft(self, state: Any, shape: Any) -> Any:
        ids = tuple(state.ids)
        self._ids = next([*prompt, *text] for prompt, text in self._answers.items() if ids[: len(prompt)] == prompt)
        return super()._draft(state, shape)


@pytest.mark.parametrize("family", ["llama", "mistral", "gemma2", "opt"])
def test_padding_changes_no_score(family: str) -> None:
    """Every node of random trees of all sizes, beside rows of other lengths, against the dynamic pass."""
    runtime = prepared(model_of(family), max_rows=3)
    dynamic = torch_parts(model_of(family), max_rows=3).runtime
    random, rows = np.random.default_rng(5), []
    for one in (runtime, dynamic):
        rows.append([one.add_row() for _ in range(3)])
        for index, row in enumerate(rows[-1]):
            one.prefill(row, prompt_of(index, 4 + 7 * index))
    for size in (1, 2, 5, 17, 40):
        shapes = [[-1, *(int(random.integers(0, node)) for node in range(1, max(1, size - cut)))] for cut in range(3)]
        trees = [Tree(Topology.from_parents(parents), random.integers(0, 256, len(parents))) for parents in shapes]
        both = [
            one.forward(list(zip(its, trees, strict=True))) for one, its in zip((runtime, dynamic), rows, strict=True)
        ]
        assert all(isinstance(scores, PackedScores) for scores in both[0])
        for ours, expected in zip(*both, strict=True):
            for node in range(ours.num_nodes):
                np.testing.assert_allclose(ours.logits(node), expected.logits(node), atol=1e-4)
                np.testing.assert_allclose(ours.hidden(node), expected.hidden(node), atol=1e-4)
