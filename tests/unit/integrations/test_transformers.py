"""The plugin: `generate` of a hooked model says what it said before, in every mode that trees take over, and in those
that they leave alone; and a service needs two lines.
"""

from __future__ import annotations

import copy
import importlib.util
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM, LogitsProcessor, LogitsProcessorList, StoppingCriteria
from transformers import StoppingCriteriaList as Criteria

from medusakit.errors import MedusaError, UsageError
from medusakit.integrations.transformers import Handle, medusa_hook, medusa_tree_decode
from medusakit.runtimes.torch.pack import PackedLinear

VOCAB = 64
EXAMPLES = Path(__file__).parents[3] / "examples"


def tiny(family: str = "llama", **settings: Any) -> Any:
    """A random model that soon repeats itself, so that drafting from the text finds something."""
    torch.manual_seed(4)
    config = AutoConfig.for_model(
        family, vocab_size=VOCAB, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=1, max_position_embeddings=256, bos_token_id=1, eos_token_id=2, pad_token_id=0, **settings,
    )  # fmt: skip
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.mul_(8)
    return model


@pytest.fixture(scope="module")
def model() -> Any:
    return tiny()


@pytest.fixture
def hooked(model: Any) -> Iterator[Handle]:
    with medusa_hook(model) as handle:
        yield handle


def prompt(seed: int, length: int = 12) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(seed).integers(3, VOCAB, (1, length)))


def both(handle: Handle, ids: torch.Tensor, **kwargs: Any) -> tuple[list[int], list[int]]:
    """(hooked, as before) from the same state of the generator."""
    torch.manual_seed(9)
    ours = handle.model.generate(ids, **kwargs)
    torch.manual_seed(9)
    before = handle.own_generate(ids, **kwargs)
    return ours[0].tolist(), before[0].tolist()


def test_greedy_is_the_models_own_on_a_hundred_prompts(hooked: Handle) -> None:
    for seed in range(100):
        ours, before = both(hooked, prompt(seed, 4 + seed % 20), max_new_tokens=24, do_sample=False)
        assert ours == before
    assert hooked.tau > 1.2  # it did draft


@pytest.mark.parametrize(
    "settings",
    [
        {"do_sample": True},
        {"do_sample": True, "temperature": 0.6, "top_k": 8, "top_p": 0.9},
        {"do_sample": True, "repetition_penalty": 1.3, "min_p": 0.02},
        {"do_sample": False, "no_repeat_ngram_size": 3},
        {"do_sample": False, "min_new_tokens": 30},
        {"do_sample": False, "bad_words_ids": [[5], [7, 9]]},
    ],
)
def test_sampling_parameters_mean_what_they_meant(hooked: Handle, settings: dict[str, Any]) -> None:
    for seed in range(6):
        ours, before = both(hooked, prompt(seed), max_new_tokens=40, **settings)
        assert ours == before


def test_processors_and_criteria_of_the_caller_see_every_token_once_in_order(hooked: Handle) -> None:
    seen: list[list[int]] = []

    class Watch(LogitsProcessor):
        def __call__(self, input_ids: Any, scores: Any) -> Any:
            seen.append(input_ids[0].tolist())
            return scores

    class AtTen(StoppingCriteria):
        def __call__(self, input_ids: Any, scores: Any, **kwargs: Any) -> Any:
            return torch.tensor([input_ids.shape[1] >= 22])

    ids = hooked.model.generate(
        prompt(1), max_new_tokens=99, logits_processor=LogitsProcessorList([Watch()]),
        stopping_criteria=Criteria([AtTen()]), min_new_tokens=50,
    )[0].tolist()  # fmt: skip
    assert len(ids) == 22
    assert seen == [ids[:end] for end in range(12, 22)]


def test_streamers_get_the_prompt_and_then_every_token(hooked: Handle) -> None:
    class Log:
        def __init__(self) -> None:
            self.parts: list[list[int]] = []
            self.ended = False

        def put(self, value: Any) -> None:
            self.parts.append(value.reshape(-1).tolist())

        def end(self) -> None:
            self.ended = True

    logs = [Log(), Log()]
    ids = hooked.model.generate(prompt(2), max_new_tokens=20, streamer=logs[0])[0].tolist()
    hooked.own_generate(prompt(2), max_new_tokens=20, streamer=logs[1])
    assert logs[0].parts == logs[1].parts and logs[0].ended
    assert sum(logs[0].parts, []) == ids


@pytest.mark.parametrize(
    "settings", [{"num_beams": 2}, {"num_return_sequences": 2, "do_sample": True}, {"use_cache": False}]
)
def test_what_trees_do_not_do_runs_as_before(hooked: Handle, settings: dict[str, Any]) -> None:
    ours, before = both(hooked, prompt(3), max_new_tokens=12, **settings)
    assert ours == before and hooked.num_steps == 0


def test_batches_and_padding_run_as_before(hooked: Handle) -> None:
    ids, mask = torch.cat([prompt(1), prompt(2)]), torch.ones(2, 12, dtype=torch.long)
    mask[0, :3] = 0
    ours, before = both(hooked, ids, attention_mask=mask, max_new_tokens=12)
    assert ours == before
    found = hooked.model.generate(prompt(1), max_new_tokens=6, return_dict_in_generate=True, output_scores=True)
    assert len(found.scores) == found.sequences.shape[1] - 12
    given = {"max_new_tokens": 6, "return_dict_in_generate": True}
    ours, before = hooked.model.generate(prompt(1), **given), hooked.own_generate(prompt(1), **given)
    assert [name for name, value in ours.items() if value is not None] == list(before) and len(before) == 2
    assert hooked.num_steps == 0


@pytest.mark.parametrize(
    ("ids", "settings"),
    [(prompt(1).float(), {}), (prompt(1), {"attention_mask": torch.ones(1, 9, dtype=torch.long)}),
     (prompt(1), {"synced_gpus": True}), (prompt(1), {"max_new_tokens": -1}), (prompt(1), {"num_beams": None})],
    ids=["ids that are no integers", "a mask that is too short", "processes that wait for each other", "minus", "none"],
)  # fmt: skip
def test_what_generate_refuses_is_refused_by_it(hooked: Handle, ids: torch.Tensor, settings: dict[str, Any]) -> None:
    asked = {"max_new_tokens": 4} | settings
    with pytest.raises(Exception) as before:
        hooked.own_generate(ids, **asked)
    with pytest.raises(type(before.value)) as ours:
        hooked.model.generate(ids, **asked)
    assert str(ours.value) == str(before.value)


def test_positions_and_types_of_the_caller_count() -> None:
    """GPT-2 adds an embedding of each: another start, or types of zeros, is another answer."""
    torch.manual_seed(4)
    config = AutoConfig.for_model("gpt2", vocab_size=VOCAB, n_embd=32, n_layer=2, n_head=2, n_positions=64)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.mul_(20)
    with medusa_hook(model) as handle:
        plain, before = both(handle, prompt(1), max_new_tokens=20, pad_token_id=0)
        assert plain == before and (steps := handle.num_steps)
        for given in ({"position_ids": torch.arange(5, 17)[None]}, {"token_type_ids": torch.zeros_like(prompt(1))}):
            ours, before = both(handle, prompt(1), max_new_tokens=20, pad_token_id=0, **given)
            assert ours == before != plain
        assert handle.num_steps == steps


def normed(model: Any) -> None:
    with torch.no_grad():
        model.model.layers[0].input_layernorm.weight.mul_(torch.linspace(-1, 2, 32))


def embedded(model: Any) -> None:
    with torch.no_grad():
        model.model.embed_tokens.weight.copy_(model.model.embed_tokens.weight.flip(0))


def replaced(model: Any) -> None:
    projection = model.model.layers[0].self_attn.v_proj
    projection.weight.data = -projection.weight.data


def loaded(model: Any) -> None:
    model.load_state_dict({name: -value for name, value in model.state_dict().items()})


@pytest.mark.parametrize("change", [normed, embedded, replaced, loaded])
@pytest.mark.parametrize("pack", [True, False])
def test_kv_of_other_weights_is_not_used(change: Any, pack: bool) -> None:
    model = tiny()
    with medusa_hook(model, enable_tree_cache=True, pack=pack) as handle:
        assert handle.prefixes is not None
        for _ in range(2):
            ours, before = both(handle, prompt(6, 30), max_new_tokens=16)
            assert ours == before
        assert handle.prefixes.state().hit_tokens == 29
        change(model)
        for _ in range(2):
            ours, before = both(handle, prompt(6, 30), max_new_tokens=16)
            assert ours == before
        assert handle.prefixes.state().hit_tokens == 2 * 29


@pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing:FutureWarning")  # peft's
@pytest.mark.parametrize("pack", [True, False])
def test_kv_of_other_adapters_is_not_used(pack: bool) -> None:
    peft = pytest.importorskip("peft")
    config = peft.LoraConfig(r=4, target_modules=["q_proj", "v_proj", "down_proj"], init_lora_weights=False)
    model = peft.get_peft_model(tiny(), config).eval()

    def check() -> list[int]:
        ours: list[int] = model.generate(input_ids=prompt(6, 30), max_new_tokens=16)[0].tolist()
        assert ours == handle.own_generate(input_ids=prompt(6, 30), max_new_tokens=16)[0].tolist()
        return ours

    with medusa_hook(model, enable_tree_cache=True, pack=pack) as handle:
        adapted = check()
        with model.disable_adapter():
            assert check() != adapted
        assert check() == adapted
        model.merge_adapter()
        check()
        model.unmerge_adapter()
        assert check() == adapted and handle.num_steps


@pytest.mark.parametrize("pack", [True, False])
def test_mixed_precision_runs_as_before_and_leaves_nothing(pack: bool) -> None:
    model = tiny()

    def answers() -> list[list[list[int]]]:
        return [model.generate(prompt(seed, 20), max_new_tokens=24).tolist() for seed in range(3)]

    plain = answers()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        mixed = answers()
    assert mixed != plain
    with medusa_hook(model, pack=pack, enable_tree_cache=True) as handle:
        for _ in range(2):
            assert answers() == plain
            steps = handle.num_steps
            with torch.autocast("cpu", dtype=torch.bfloat16):
                assert answers() == mixed
            assert handle.num_steps == steps > 0


def test_a_reference_to_the_hooked_generate_outlives_the_hook(model: Any) -> None:
    handle = medusa_hook(model)
    hooked = model.generate
    handle.unhook()
    assert torch.equal(hooked(prompt(5), max_new_tokens=8), model.generate(prompt(5), max_new_tokens=8))


def halved(model: Any) -> None:
    model.to(torch.bfloat16)


def widened(model: Any) -> None:
    model.resize_token_embeddings(80)


def trained(model: Any) -> None:
    model.config._attn_implementation = "eager"
    model.train()


@pytest.mark.parametrize("change", [halved, widened, trained])
def test_a_model_that_has_changed_generates_as_before_and_says_so_once(
    change: Any, caplog: pytest.LogCaptureFixture
) -> None:
    model = tiny(attention_dropout=0.5)
    with medusa_hook(model, enable_tree_cache=True) as handle:
        ours, before = both(handle, prompt(5), max_new_tokens=12)
        assert ours == before and (steps := handle.num_steps)
        change(model)
        with caplog.at_level(logging.WARNING, logger="medusakit"):
            for _ in range(2):
                ours, before = both(handle, prompt(5), max_new_tokens=12)
                assert ours == before and handle.num_steps == steps
    assert [record.name for record in caplog.records].count("medusakit.integrations.handle") == 1
    assert model.generate(prompt(5), max_new_tokens=2).shape == (1, 14)


def test_what_cannot_be_hooked_is_told_why(model: Any) -> None:
    with pytest.raises(UsageError, match="training mode") as caught:
        medusa_hook(tiny(attention_dropout=0.5).train())
    assert caught.value.hint == "model.eval()"
    for other in (None, "gpt2", torch.nn.Linear(2, 2)):
        with pytest.raises(UsageError, match="no model of transformers"):
            medusa_hook(other)
    for budget in (0, -1, "x", None, 2.0):
        with pytest.raises(UsageError, match="budget"):
            medusa_hook(model, budget=budget)  # type: ignore[arg-type]
    assert not hasattr(model, "medusa_handle")


def test_a_copy_would_generate_with_the_original_so_there_is_none() -> None:
    model = tiny()
    with medusa_hook(model), pytest.raises(UsageError, match="copied"):
        copy.deepcopy(model)
    assert copy.deepcopy(model).generate(prompt(5), max_new_tokens=2).shape == (1, 14)


def test_it_comes_off_cleanly(model: Any) -> None:
    before = model.generate(prompt(5), max_new_tokens=20)
    hooks = len(model.lm_head._forward_pre_hooks)
    handle = medusa_hook(model)
    with pytest.raises(UsageError, match="hooked already"):
        medusa_hook(model)
    assert torch.equal(medusa_tree_decode(model, prompt(5), max_new_tokens=20), before) and handle.num_steps
    assert model(prompt(5)).logits.shape == (1, 12, VOCAB)  # its forward is for others as it was
    handle.unhook()
    handle.unhook()
    assert "generate" not in vars(model) and not hasattr(model, "medusa_handle")
    assert len(model.lm_head._forward_pre_hooks) == hooks
    with pytest.raises(UsageError, match="not hooked"):
        medusa_tree_decode(model, prompt(5))


def test_linear_layers_are_packed_and_given_back() -> None:
    model = tiny()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    layer, plain = model.model.layers[0].mlp.up_proj, model.generate(prompt(5), max_new_tokens=20)
    with medusa_hook(model, enable_tree_cache=True) as handle:
        assert type(layer) is PackedLinear
        assert torch.equal(model.generate(prompt(5), max_new_tokens=20), plain)
        assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
        model.train()
        assert type(layer) is torch.nn.Linear
        with torch.no_grad():
            layer.weight.mul_(-1)
        model.eval()
        ours, fresh = both(handle, prompt(5), max_new_tokens=20)  # of the weights as they are now, KV included
        assert ours == fresh and ours != plain[0].tolist()
        assert type(layer) is PackedLinear
    assert type(layer) is torch.nn.Linear and torch.equal(layer.weight, -before["model.layers.0.mlp.up_proj.weight"])
    with medusa_hook(model, pack=False) as handle:
        assert type(layer) is torch.nn.Linear
        ours, fresh = both(handle, prompt(5), max_new_tokens=20)
        assert ours == fresh and type(layer) is torch.nn.Linear


def test_what_is_no_float32_of_the_cpu_is_not_packed() -> None:
    model = tiny().to(torch.bfloat16)
    with medusa_hook(model) as handle:
        assert not any(isinstance(module, PackedLinear) for module in model.modules())
        handle.model.generate(prompt(5), max_new_tokens=4)
    assert handle.num_steps


def test_heads_of_another_model_leave_the_model_as_it_was(tmp_path: Path) -> None:
    model = tiny()
    with pytest.raises(MedusaError):
        medusa_hook(model, tmp_path / "nothing")
    assert not model.lm_head._forward_pre_hooks and not hasattr(model, "medusa_handle")
    assert not any(isinstance(module, PackedLinear) for module in model.modules())


def test_buffers_stay_for_the_next_call_and_are_empty(hooked: Handle) -> None:
    hooked.model.generate(prompt(1), max_new_tokens=20)
    layers = hooked.runtime._cache.layers  # type: ignore[attr-defined]
    buffer = layers[0].keys
    assert buffer is not None and not buffer.any()
    hooked.model.generate(prompt(2), max_new_tokens=20)
    assert layers[0].keys.data_ptr() == buffer.data_ptr()


def test_the_tree_cache_reuses_what_earlier_calls_left(model: Any) -> None:
    with medusa_hook(model, enable_tree_cache=True) as handle:
        ours, before = both(handle, prompt(6, 30), max_new_tokens=20)
        assert ours == before
        longer = torch.tensor([[*ours, 7, 8]])
        ours, before = both(handle, longer, max_new_tokens=20)
        assert ours == before and handle.prefixes is not None
        assert handle.prefixes.state().hit_tokens >= 40


def test_a_model_without_trees_goes_on_as_before() -> None:
    model = tiny("mamba", state_size=8)
    with medusa_hook(model) as handle:
        ours, before = both(handle, prompt(1), max_new_tokens=12)
        assert ours == before and handle.num_steps == 0 and "trees" in handle.runtime.capabilities.limit


def test_an_existing_service_is_converted_by_two_lines(model: Any) -> None:
    """examples/service.py answers requests with transformers; `convert` in it holds the two lines."""
    spec = importlib.util.spec_from_file_location("service", EXAMPLES / "service.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    service = module.Service(model)
    request = {"ids": prompt(8)[0].tolist(), "max_new_tokens": 24}
    before = service.answer(request)
    handle = module.convert(service, None)
    assert service.answer(request) == before and handle.num_steps > 0
    handle.unhook()
    assert service.answer(request) == before
