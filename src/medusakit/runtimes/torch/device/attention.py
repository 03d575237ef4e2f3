"""Which kernel computes attention in prepared steps: torch's, or our own where it is there, right, and faster.

A step tells transformers to call `attend` as long as it runs; prompts, and others who use the model, keep what it had.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS, sdpa_mask
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from medusakit.models.spec import ModelSpec
from medusakit.runtimes.torch.device.buckets import Bucket
from medusakit.runtimes.torch.model import CausalModel

NAME = "medusakit_tree"  # in transformers' register of attention functions
Kernel = Callable[[Any, Any, Any, Any, float], Any]  # as `kernels.tree_attention`
_REPEATS = 20
_CLOSE = {torch.float32: 1e-4, torch.float16: 5e-3, torch.bfloat16: 3e-2}  # difference of averages of numbers near 1
_KERNEL: ContextVar[Kernel | None] = ContextVar("kernel of the step that this thread runs", default=None)


def attend(
    module: Any, query: Any, key: Any, value: Any, attention_mask: Any, scaling: Any = None, **options: Any
) -> Any:
    """As transformers calls it: query [R, H, n, d], key and value [R, G, cells, d]; gives [R, n, H, d]. A thread that
    uses the model while another runs a step gets torch's kernel.
    """
    kernel = _KERNEL.get()
    plain = options.get("position_bias") is None and not options.get("dropout") and options.get("softcap") is None
    fits = attention_mask is not None and attention_mask.shape[1] == 1 and key.shape[-1] == value.shape[-1]
    if kernel is None or not (plain and fits):
        return sdpa_attention_forward(module, query, key, value, attention_mask, scaling=scaling, **options)
    scale = 1 / math.sqrt(query.shape[-1]) if scaling is None else float(scaling)
    return kernel(query, key, value, attention_mask, scale), None


ALL_ATTENTION_FUNCTIONS.register(NAME, attend)
ALL_MASK_ATTENTION_FUNCTIONS.register(NAME, sdpa_mask)


class TreeAttention:
    """What steps of one model attend with. reason: why it is torch's kernel always, "" where it depends on the shape.

    kernel  None: there is none
    timed   seconds of a call
    """

    def __init__(
        self,
        model: CausalModel,
        spec: ModelSpec,
        kernel: Kernel | None,
        timed: Callable[[Callable[[], Any]], float],
    ) -> None:
        self._model, self._spec, self._kernel, self._timed = model, spec, kernel, timed
        self.reason = "" if kernel is not None else "no kernel of our own runs here"
        if kernel is not None and model.config._attn_implementation != "sdpa":
            self.reason = f"the model attends by {model.config._attn_implementation!r}, not by torch's kernels"
        self._chosen: dict[Bucket, bool] = {}

    def chosen(self, bucket: Bucket) -> bool:
        """Whether steps of this shape take our kernel: it must say what torch's says, and take less time."""
        if self.reason:
            return False
        if bucket not in self._chosen:
            self._chosen[bucket] = self._compared(bucket)
        return self._chosen[bucket]

    def shown(self) -> str:
        """For people: why torch's kernel always, or for which shapes so far ours."""
        ours = [f"{rows}x{nodes} over {cells}" for (rows, nodes, cells), chosen in self._chosen.items() if chosen]
        return (
            f"torch's kernel: {self.reason}" if self.reason else f"our kernel for {', '.join(ours) or 'no shape yet'}"
        )

    @contextmanager
    def used(self, bucket: Bucket) -> Iterator[None]:
        """The model's passes inside attend as chosen."""
        if self._kernel is None or not self.chosen(bucket):
            yield
            return
        config, token = self._model.config, _KERNEL.set(self._kernel)
        before = config._attn_implementation
        config._attn_implementation_internal = NAME
        try:
            yield
        finally:
            config._attn_implementation_internal = before
            _KERNEL.reset(token)

    @torch.inference_mode()  # type: ignore[untyped-decorator]
    def _compared(self, bucket: Bucket) -> bool:
        """Random numbers in the model's shapes, by both. A kernel that fails or says otherwise is never asked again."""
        assert self._kernel is not None
        query, keys, values, mask, shared = _example(self._model, self._spec, bucket)
        scale, kernel = 1 / math.sqrt(query.shape[-1]), self._kernel

        def ours() -> Any:
            return kernel(query, keys, values, mask, scale)

        def theirs() -> Any:
            return sdpa_attention_forward(shared, query, keys, values, mask, scaling=scale)[0]

        try:
            found = ours()
        except Exception as error:  # of the compiler or the device: theirs can be any
            self.reason = f"our kernel does not run here: {type(error).__name__}: {str(error).splitlines()[0][:200]}"
            return False
        apart = float((found.float() - theirs().float()).abs().max())
        if not apart <= _CLOSE.get(query.dtype, 0.0):
            self.reason = f"our kernel differs from torch's by {apart:.1g}"
            return False
        return self._timed(ours) < self._timed(theirs)


class _Shared:
    """What `sdpa_attention_forward` asks a layer for."""

    is_causal = False

    def __init__(self, num_key_value_groups: int) -> None:
        self.num_key_value_groups = num_key_value_groups


def _example(model: CausalModel, spec: ModelSpec, bucket: Bucket) -> tuple[Any, Any, Any, Any, _Shared]:
    """Query, keys, values, a mask in which every node sees half of the cells, and the layer."""
    random = torch.Generator(device=model.device).manual_seed(0)
    rows, nodes, cells = bucket

    def made(*shape: int) -> Any:
        return torch.randn(shape, generator=random, device=model.device).to(model.dtype)

    query = made(rows, nodes, spec.num_heads, spec.head_dim).transpose(1, 2)
    keys, values = made(2, rows, spec.num_kv_heads, cells, spec.head_dim)
    hidden = torch.rand((rows, 1, nodes, cells), generator=random, device=model.device) < 0.5
    hidden[..., 0] = False
    mask = torch.zeros(hidden.shape, dtype=model.dtype, device=model.device)
    mask.masked_fill_(hidden, torch.finfo(model.dtype).min)
    return query, keys, values, mask, _Shared(spec.num_heads // spec.num_kv_heads)


def tree_attention_for(model: CausalModel, spec: ModelSpec, kind: type[TreeAttention] = TreeAttention) -> TreeAttention:
    """With our kernel where there is Triton, which comes with torch for CUDA."""
    kernel: Kernel | None = None
    if model.device.type == "cuda":
        try:
            from medusakit.runtimes.torch.device.kernels import tree_attention as kernel
        except ImportError:
            kernel = None
    return kind(model, spec, kernel, _seconds)


def _seconds(call: Callable[[], Any]) -> float:
    """Of one call among many on the device, by events."""
    for _ in range(3):
        call()
    first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    first.record()
    for _ in range(_REPEATS):
        call()
    last.record()
    last.synchronize()
    return float(first.elapsed_time(last)) / 1e3 / _REPEATS
