"""The `hf` mode of the bench: transformers' own greedy `generate` on the same weights, in float32, untouched.

Knows nothing of drafting. A GGUF is dequantised by transformers itself.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from medusakit.errors import MissingExtraError
from medusakit.models.resolve import ResolvedModel


@dataclass(frozen=True, slots=True)
class BaselineAnswer:
    """token_ids: generated ids, end of sequence included. decode_s: seconds from the first token to the last."""

    token_ids: tuple[int, ...]
    prefill_s: float
    decode_s: float


class TransformersBaseline:
    """A transformers model that answers greedily.

    Raises MissingExtraError where torch or transformers are not installed.
    """

    def __init__(self, resolved: ResolvedModel, *, threads: int | None = None) -> None:
        try:
            import torch
            from transformers import AutoModelForCausalLM
        except ImportError as cause:
            raise MissingExtraError(
                f"mode hf needs {cause.name}, which is not installed", hint="pip install 'medusakit[torch]'"
            ) from cause
        if threads:
            torch.set_num_threads(threads)
        folder, extra = resolved.path, {}
        if resolved.kind == "gguf":
            folder, extra = resolved.path.parent, {"gguf_file": resolved.path.name}
        self._torch = torch
        self._model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, **extra).eval()

    def generate(
        self,
        ids: Sequence[int],
        *,
        max_tokens: int,
        eos_ids: Sequence[int],
        clock: Callable[[], float] = time.perf_counter,
    ) -> BaselineAnswer:
        """Greedy answer to one prompt of ids, through `model.generate` with its key-value cache."""
        torch = self._torch
        times = _TokenTimes(clock)
        prompt = torch.tensor([list(ids)])
        started = clock()
        with torch.inference_mode():
            output = self._model.generate(
                prompt,
                attention_mask=torch.ones_like(prompt),
                max_new_tokens=max_tokens,
                do_sample=False,
                eos_token_id=sorted(eos_ids),
                pad_token_id=min(eos_ids, default=0),
                streamer=times,
            )
        answer = tuple(output[0, len(ids) :].tolist())
        first = times.stamps[1] if len(times.stamps) > 1 else clock()
        return BaselineAnswer(answer, first - started, times.stamps[-1] - first)


class _TokenTimes:
    """A transformers streamer that only reads the clock; its first `put` is the prompt."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self.stamps: list[float] = []

    def put(self, value: Any) -> None:
        self.stamps.append(self._clock())

    def end(self) -> None:
        """Nothing to flush."""
