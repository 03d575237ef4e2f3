"""Models that transformers loads quantised: they draft, say what they say by themselves, and are left as they are.

Skipped where bitsandbytes or torchao are not installed. Formats that round activations may part at a near tie.
"""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, BitsAndBytesConfig, LlamaConfig, TorchAoConfig

from medusakit.engine.controller import PlainController
from medusakit.errors import ModelError
from medusakit.integrations.transformers import medusa_hook
from medusakit.models.resolve import ResolvedModel
from medusakit.runtimes.torch.load import load_torch, pretrained
from medusakit.runtimes.torch.pack import PackedLinear
from medusakit.settings import SamplingParams
from torch_families import BASE, answer, controllers, prompt_of, same_but_for_ties

NEAR = 0.15  # of scores, in formats that round activations (docs/concepts.md)
PARAMS = SamplingParams(max_tokens=24)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.manual_seed(0)
    config = LlamaConfig(**BASE | {"hidden_size": 128, "intermediate_size": 256})
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.mul_(4)
    made = tmp_path_factory.mktemp("float")
    model.save_pretrained(made)
    return made


def bitsandbytes(bits: int) -> Any:
    pytest.importorskip("bitsandbytes")
    if bits == 8:
        return BitsAndBytesConfig(load_in_8bit=True)
    return BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=torch.float32)


def torchao() -> Any:
    pytest.importorskip("torchao")
    from torchao.quantization import Int8WeightOnlyConfig

    return TorchAoConfig(Int8WeightOnlyConfig())


WAYS = {"bitsandbytes-8": lambda: bitsandbytes(8), "bitsandbytes-4": lambda: bitsandbytes(4), "torchao-8": torchao}


def own_answer(model: Any, prompt: list[int]) -> list[int]:
    ids = torch.tensor([prompt])
    settings = {"max_new_tokens": 24, "do_sample": False, "eos_token_id": None}
    found: list[int] = model.generate(ids, attention_mask=torch.ones_like(ids), **settings)[0, len(prompt) :].tolist()
    return found


@pytest.mark.parametrize("way", WAYS)
def test_a_quantised_model_says_what_it_says_by_itself(folder: Path, way: str) -> None:
    resolved, options = ResolvedModel(way, folder, "hf"), {"quantization_config": WAYS[way]()}
    runtime: Any = load_torch(resolved, options=options).runtime
    capabilities, model = runtime.capabilities, runtime.model.hf
    assert (capabilities.weights, capabilities.exact, capabilities.trees) == ("quantised", "numerical-ties", True)
    layer, fresh = model.model.layers[0].mlp.up_proj, pretrained(resolved, options=options).model.layers[0].mlp.up_proj
    assert type(layer) is type(fresh) and type(layer.weight) is type(fresh.weight) is not torch.nn.Parameter
    assert isinstance(model.lm_head, PackedLinear)  # that one is not quantised
    accepted = 0
    for seed in (7, 8, 9):
        prompt = prompt_of(seed)
        plain, session = answer(runtime, PlainController(), prompt, PARAMS)
        assert plain == own_answer(model, prompt)
        for controller in controllers([*prompt, *plain], 258, trees=True):
            found, other = answer(runtime, controller, prompt, PARAMS)
            assert same_but_for_ties(runtime, session, prompt, found, plain, NEAR)
            accepted += sum(event.from_draft for event in other.events)
    assert accepted > 20


def test_the_plugin_leaves_quantised_layers_alone(folder: Path) -> None:
    model = pretrained(ResolvedModel("q", folder, "hf"), options={"quantization_config": torchao()})
    weight, before = model.model.layers[0].mlp.up_proj.weight, own_answer(model, prompt_of(7))
    with medusa_hook(model) as handle:
        assert own_answer(model, prompt_of(7)) == before and handle.num_steps
        assert model.model.layers[0].mlp.up_proj.weight is weight
    assert type(model.lm_head) is torch.nn.Linear and own_answer(model, prompt_of(7)) == before


def test_files_that_are_quantised_load_without_being_told(folder: Path, tmp_path: Path) -> None:
    resolved = ResolvedModel("q", folder, "hf")
    model = pretrained(resolved, options={"quantization_config": bitsandbytes(4)})
    model.save_pretrained(tmp_path)
    runtime: Any = load_torch(ResolvedModel("q", tmp_path, "hf")).runtime
    assert runtime.capabilities.weights == "quantised" and runtime.capabilities.trees
    assert answer(runtime, PlainController(), prompt_of(7), PARAMS)[0] == own_answer(model, prompt_of(7))


@pytest.mark.parametrize(
    ("method", "needs", "more"),
    [
        ("gptq", "gptqmodel", {}),
        ("awq", "gptqmodel", {"zero_point": True, "version": "gemm"}),
        ("bitsandbytes", "bitsandbytes", {"load_in_8bit": True}),
        ("torchao", "torchao", {"quant_type": {"default": {"_type": "Int8WeightOnlyConfig", "_data": {}}}}),
    ],
)
def test_what_is_missing_for_quantised_files_is_named(
    folder: Path, tmp_path: Path, method: str, needs: str, more: dict[str, Any]
) -> None:
    if importlib.util.find_spec(needs):
        pytest.skip(f"{needs} is installed")
    config = json.loads((folder / "config.json").read_text())
    config["quantization_config"] = {"quant_method": method, "bits": 4, "group_size": 32, **more}
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "model.safetensors").symlink_to(folder / "model.safetensors")
    with pytest.raises(ModelError, match=rf"(?is)cannot load .*(optimum|{needs}|install)") as told:
        load_torch(ResolvedModel("q", tmp_path, "hf"))
    assert told.value.hint
