"""Our attention kernel says what torch's says, and compiles for devices. Without a device: Triton interprets it on the
CPU (but for bfloat16, which its interpreter cannot multiply), and compiles it for others than there are.
"""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

from device_fakes import prepared
from medusakit.engine.controller import PlainController
from medusakit.runtimes.torch.load import torch_parts
from torch_families import SETTINGS, answer, controllers, model_of, prompt_of, same_but_for_ties

pytest.importorskip("triton", reason="needs triton, which `make test-all` installs")
pytestmark = pytest.mark.slow

SHAPES = [  # rows, heads, heads of keys, nodes, cells, head size, blocks
    (1, 8, 2, 5, 300, 64, 8),
    (2, 4, 4, 1, 256, 16, 264),
    (3, 6, 3, 16, 520, 80, 64),
    (1, 4, 1, 64, 1000, 32, 264),
    (2, 9, 3, 3, 77, 64, 264),
    (1, 2, 2, 2, 700, 256, 264),
]


@pytest.fixture(scope="module")
def kernels() -> Any:
    from medusakit.runtimes.torch.device import kernels

    return kernels


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_it_says_what_torch_says(kernels: Any, shape: tuple[int, ...], dtype: Any) -> None:
    rows, heads, groups, nodes, cells, size, blocks = shape
    random = torch.Generator().manual_seed(sum(shape))

    def made(*sizes: int) -> Any:
        return torch.randn(sizes, generator=random).to(dtype)

    query = made(rows, nodes, heads, size).transpose(1, 2)
    keys, values = made(2, rows, groups, cells + 9, size)[:, :, :, :cells]  # views of larger buffers, as in steps
    mask = torch.zeros(rows, 1, nodes, cells, dtype=dtype)
    mask.masked_fill_(torch.rand(mask.shape, generator=random) < 0.5, torch.finfo(dtype).min)
    mask[..., : cells // 2] = torch.finfo(dtype).min  # whole parts that nobody sees
    found = kernels.tree_attention(query, keys, values, mask, size**-0.5, blocks)
    shared = [one.double().repeat_interleave(heads // groups, 1) for one in (keys, values)]
    told = scaled_dot_product_attention(query.double(), *shared, attn_mask=mask.double(), scale=size**-0.5)
    assert found.shape == (rows, nodes, heads, size)
    tolerance = 1e-6 if dtype == torch.float32 else 1e-3
    torch.testing.assert_close(found.double(), told.transpose(1, 2), atol=tolerance, rtol=tolerance)


def test_a_row_that_sees_nothing_comes_to_a_number(kernels: Any) -> None:
    """Padding: its scores are the lowest number everywhere, as torch takes them."""
    query, (keys, values) = torch.randn(1, 2, 3, 16), torch.randn(2, 1, 2, 90, 16)
    mask = torch.full((1, 1, 3, 90), torch.finfo(torch.float32).min)
    torch.testing.assert_close(
        kernels.tree_attention(query, keys, values, mask, 0.25),
        scaled_dot_product_attention(query, keys, values, attn_mask=mask, scale=0.25).transpose(1, 2),
    )


@pytest.mark.parametrize("family", ["llama", "mistral", "gemma3_text"])
def test_answers_by_steps_that_attend_with_it(kernels: Any, family: str) -> None:
    model, prompt = model_of(family), prompt_of(7)
    dynamic, runtime = torch_parts(model).runtime, prepared(model, kernel=kernels.tree_attention)
    plain, session = answer(dynamic, PlainController(), prompt, SETTINGS[0])
    for controller in (PlainController(), controllers([*prompt, *plain], 258, True)[0]):
        found, _ = answer(runtime, controller, prompt, SETTINGS[0])
        assert same_but_for_ties(dynamic, session, prompt, found, plain)
    assert runtime.attention.reason == ""


COMPILE = """
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from medusakit.runtimes.torch.device import kernels

FLOATS, SIZES = {"sums", "maxima", "totals"}, {"BLOCK", "CELLS", "SIZE", "PRECISION", "SPLITS"}
for capability, on_chip in ((80, 163), (89, 99), (90, 227)):  # kilobytes of a block's shared memory
    for dtype, block, cells, size in (("bf16", 64, 64, 128), ("fp16", 16, 64, 64), ("fp32", 16, 16, 256)):
        sizes = {"BLOCK": block, "CELLS": cells, "SIZE": size, "SPLITS": 8}
        sizes["PRECISION"] = "ieee" if dtype == "fp32" else "tf32"
        for kernel in (kernels._part, kernels._together):
            kinds = {"scale": "fp32"} | {name: "*fp32" for name in FLOATS} | {name: "constexpr" for name in SIZES}
            kinds |= {name: "*" + dtype for name in ("query", "keys", "values", "mask", "out")}
            signature = {name: kinds.get(name, "i32") for name in kernel.arg_names}
            constants = {name: value for name, value in sizes.items() if name in signature}
            made = triton.compile(ASTSource(kernel, signature, constants), target=GPUTarget("cuda", capability, 32))
            assert made.metadata.shared <= on_chip * 1024, (capability, dtype, made.metadata.shared)
            print(capability, dtype, kernel.__name__)
"""


def test_it_compiles_for_devices() -> None:
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    done = subprocess.run([sys.executable, "-c", COMPILE], capture_output=True, text=True, timeout=600, env=environment)
    assert done.returncode == 0, done.stderr[-3000:]
    assert len(done.stdout.splitlines()) == 18
