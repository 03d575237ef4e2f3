"""What steps attend with: our kernel only where it says what torch's says, in less time, and only while a step runs."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from typing import Any

import pytest
import torch

from device_fakes import falling, prepared
from medusakit.engine.controller import PlainController
from medusakit.runtimes.torch.device.attention import NAME, TreeAttention
from medusakit.runtimes.torch.device.buckets import Bucket
from medusakit.runtimes.torch.device.runtime import DeviceRuntime
from medusakit.runtimes.torch.load import torch_parts
from recorded import Recording
from torch_families import SETTINGS, answer, controllers, model_of, prompt_of, same_but_for_ties

BUCKET = Bucket(1, 4, 256)


class Kernel:
    """Grouped attention under a mask, by plain products; counts its calls."""

    def __init__(self, off: float = 0.0) -> None:
        self.calls, self._off = 0, off

    def __call__(self, query: Any, keys: Any, values: Any, mask: Any, scale: float) -> Any:
        self.calls += 1
        rows, heads, nodes, size = query.shape
        grouped = query.reshape(rows, keys.shape[1], -1, nodes, size)
        scores = grouped @ keys[:, :, None].transpose(-1, -2) * scale + mask[:, :, None]
        found = scores.softmax(-1) @ values[:, :, None] + self._off
        return found.reshape(rows, heads, nodes, size).transpose(1, 2)


def attention_of(kernel: Any, timed: Callable[..., float] | None = None, family: str = "llama") -> TreeAttention:
    runtime = torch_parts(model_of(family)).runtime
    return TreeAttention(runtime.model, runtime.spec, kernel, timed or falling())  # type: ignore[attr-defined]


@pytest.mark.parametrize("family", ["llama", "mistral", "gemma3_text", "qwen3", "gpt2"])
def test_steps_attend_with_the_kernel_and_answers_stay(family: str) -> None:
    kernel, recording = Kernel(), Recording()
    model, prompt = model_of(family), prompt_of(len(family))
    dynamic, runtime = torch_parts(model).runtime, prepared(model, recording, kernel=kernel)
    for params in SETTINGS:
        plain, session = answer(dynamic, PlainController(), prompt, params)
        for controller in (PlainController(), *controllers([*prompt, *plain], 258, True)[::3]):
            found, _ = answer(runtime, controller, prompt, params)
            assert same_but_for_ties(dynamic, session, prompt, found, plain)
    assert runtime.attention.reason == "" and kernel.calls >= 2 * dynamic.spec.num_layers
    assert recording.num_replays > recording.num_captures > 0


def test_who_else_uses_the_model_attends_as_before() -> None:
    model, kernel = model_of("llama"), Kernel()
    runtime = prepared(model, kernel=kernel)
    answer(runtime, PlainController(), prompt_of(3), SETTINGS[0])
    called = kernel.calls
    assert called and model.config._attn_implementation == "sdpa"
    model.generate(torch.tensor([prompt_of(3)]), max_new_tokens=3, do_sample=False, pad_token_id=0)
    assert kernel.calls == called


def test_another_thread_that_uses_the_model_meanwhile_attends_by_torch() -> None:
    attention = attention_of(Kernel())
    model, asked = attention._model.hf, torch.tensor([prompt_of(3)])
    settings: dict[str, Any] = {"max_new_tokens": 3, "do_sample": False, "pad_token_id": 0}
    before, kernel = model.generate(asked, **settings).tolist(), attention._kernel
    with attention.used(BUCKET), ThreadPoolExecutor(1) as other:
        called = kernel.calls  # type: ignore[union-attr]
        assert other.submit(model.generate, asked, **settings).result().tolist() == before
    assert kernel.calls == called  # type: ignore[union-attr]


def test_a_failing_step_leaves_the_model_as_it_was() -> None:
    attention = attention_of(Kernel())
    config = attention._model.config
    with pytest.raises(ValueError, match="mine"), attention.used(BUCKET):
        assert config._attn_implementation == NAME
        raise ValueError("mine")
    assert config._attn_implementation == "sdpa"


def test_the_faster_one_is_chosen_for_each_shape() -> None:
    times = count(9, -1)
    assert not attention_of(Kernel(), lambda call: next(times)).chosen(BUCKET)  # ours is asked first
    attention, asked = attention_of(Kernel()), list[Any]()
    attention._timed = lambda call: asked.append(call) or float(len(asked))  # type: ignore[func-returns-value]
    assert attention.chosen(BUCKET) and attention.chosen(BUCKET)
    assert len(asked) == 2, "measured once a shape"


@pytest.mark.parametrize(
    ("kernel", "reason"),
    [
        (None, "no kernel of our own runs here"),
        (Kernel(off=0.01), "our kernel differs from torch's by 0.01"),
        (lambda *given: 1 / 0, "our kernel does not run here: ZeroDivisionError: division by zero"),
        (lambda query, *given: query.transpose(1, 2) * float("nan"), "our kernel differs from torch's by nan"),
    ],
)
def test_a_kernel_that_is_not_right_is_not_used(kernel: Any, reason: str) -> None:
    attention = attention_of(kernel)
    assert not attention.chosen(BUCKET) and attention.reason == reason
    with attention.used(BUCKET):
        assert attention._model.config._attn_implementation == "sdpa"


def test_models_that_do_not_attend_by_torch_keep_their_own() -> None:
    model = model_of("llama")
    model.set_attn_implementation("eager")
    runtime = prepared(model, kernel=Kernel())
    assert not runtime.attention.chosen(BUCKET) and "'eager'" in runtime.attention.reason


def test_there_is_no_kernel_on_the_cpu() -> None:
    runtime = torch_parts(model_of("llama"), prepared=True).runtime
    assert isinstance(runtime, DeviceRuntime) and runtime.attention.reason == "no kernel of our own runs here"
