"""The torch runtime on models of many families: any tree and drafter says what plain decoding says, and what
transformers' own greedy `generate` says. Random tiny models, so nearly every guess is wrong unless it is told.
"""

from __future__ import annotations

import pytest
import torch

from fakes import ByteTokenizer
from medusakit.engine.controller import PlainController
from medusakit.engine.engine import Engine
from medusakit.runtimes.torch.load import torch_parts
from torch_families import (
    ALL,
    CHAINS,
    FAMILIES,
    PLAIN,
    SETTINGS,
    answer,
    controllers,
    model_of,
    prompt_of,
    same_but_for_ties,
)


@pytest.mark.parametrize("family", [*FAMILIES, *CHAINS])
def test_trees_and_chains_say_what_plain_decoding_says(family: str) -> None:
    runtime = torch_parts(model_of(family)).runtime
    assert runtime.capabilities.trees == (family in FAMILIES) and runtime.capabilities.chains
    assert bool(runtime.capabilities.limit) == (family in CHAINS)
    accepted = 0
    for params in SETTINGS:
        prompt = prompt_of(len(family))
        plain, session = answer(runtime, PlainController(), prompt, params)
        for controller in controllers([*prompt, *plain], 258, runtime.capabilities.trees):
            found, other = answer(runtime, controller, prompt, params)
            assert same_but_for_ties(runtime, session, prompt, found, plain)
            accepted += sum(event.from_draft for event in other.events)
    assert accepted > 20


@pytest.mark.parametrize("family", [*ALL])
def test_plain_decoding_is_greedy_generate(family: str) -> None:
    model, prompt = model_of(family), prompt_of(7)
    with torch.no_grad():
        ids = model.generate(
            torch.tensor([prompt]), max_new_tokens=24, do_sample=False, attention_mask=torch.ones(1, len(prompt))
        )
    runtime = torch_parts(model).runtime
    found, session = answer(runtime, PlainController(), prompt, SETTINGS[0])
    assert same_but_for_ties(runtime, session, prompt, found, ids[0, len(prompt) :].tolist())


@pytest.mark.parametrize("family", PLAIN)
def test_models_with_a_state_decode_plainly_and_say_why(family: str) -> None:
    runtime = torch_parts(model_of(family), max_rows=2).runtime
    capabilities = runtime.capabilities
    assert not capabilities.trees and not capabilities.chains and "layers" in capabilities.limit
    params = SETTINGS[1]
    alone, _ = answer(runtime, PlainController(), prompt_of(1), params)
    engine = Engine(runtime, ByteTokenizer(), PlainController())
    both = [engine.start(prompt_of(seed), params) for seed in (1, 2)]
    for _ in engine.run(both[0]):
        pass
    assert list(both[0].output_ids) == alone
    again = engine.start([*prompt_of(1), 5], params, engine.keep(both[0]))  # back to the prompt: it runs again
    for _ in engine.run(again):
        pass
    engine.finish(again)
    engine.finish(both[1])
    assert list(again.output_ids) == answer(runtime, PlainController(), [*prompt_of(1), 5], params)[0]
