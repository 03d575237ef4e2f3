"""A transformers model as it is: its own forward, with what goes into the LM head read on the way."""

from __future__ import annotations

import inspect
from typing import Any

import torch

from medusakit.errors import UnsupportedModelError

_CACHE_NAMES = ("cache", "cache_params", "past_key_values")  # by version of transformers and family


def setting(config: Any, name: str) -> Any:
    """A field of a transformers configuration; None where there is none, or one for every layer instead."""
    try:
        return getattr(config, name, None)
    except RuntimeError:  # fields that vary by layer refuse to be read as one
        return None


class CausalModel:
    """Runs passes of a model. A hook on the LM head reads the hidden states and, where one position's scores are
    wanted, lets the head compute only those; it sleeps while others use the model."""

    def __init__(self, model: Any) -> None:
        head = model.get_output_embeddings()
        if head is None or not hasattr(head, "weight"):
            raise UnsupportedModelError(
                f"{type(model).__name__} has no LM head of its own, so its hidden states cannot be read",
                hint="a causal language model: AutoModelForCausalLM",
            )
        self.hf = model
        self.config = model.config.get_text_config(decoder=True)
        self.vocab_size, self.hidden_size = (int(size) for size in head.weight.shape)
        adapted = getattr(model, "get_base_model", None)  # peft's wrapper takes anything and passes it on
        parameters = inspect.signature((adapted() if adapted else model).forward).parameters
        self._cache_name = next((name for name in _CACHE_NAMES if name in parameters), _CACHE_NAMES[-1])
        self.takes_positions = "position_ids" in parameters
        self.gives_positions = True  # ours, where it takes them
        self._running, self._last_only = False, False
        self._hidden: Any = None
        self._hook = head.register_forward_pre_hook(self._read)

    @property
    def dtype(self) -> Any:
        """Of activations: a quantised model's is that of what it does not quantise."""
        return self.hf.get_input_embeddings().weight.dtype

    @property
    def device(self) -> Any:
        return self.hf.get_input_embeddings().weight.device

    def run(self, ids: Any, *, cache: Any, positions: Any = None, mask: Any = None, last_only: bool = False) -> Any:
        """(hidden states [rows, n, d], logits [rows, n or 1, V], the model's whole output).

        ids and positions [rows, n]; last_only: scores of the last position alone
        """
        extra = (
            {"position_ids": positions}
            if positions is not None and self.gives_positions and self.takes_positions
            else {}
        )
        self._running, self._last_only, self._hidden = True, last_only, None
        try:
            with torch.inference_mode():
                output = self.hf(
                    input_ids=ids,
                    attention_mask=mask,
                    use_cache=True,
                    return_dict=True,
                    **{self._cache_name: cache},
                    **extra,
                )
        finally:
            self._running = False
        if self._hidden is None:
            raise UnsupportedModelError(f"{type(self.hf).__name__} does not call its LM head as a module")
        hidden, self._hidden = self._hidden, None
        return hidden, output.logits, output

    def cache_of(self, output: Any) -> Any:
        """The cache that a pass left."""
        return getattr(output, self._cache_name, None)

    def close(self) -> None:
        """Take the hook off the model."""
        self._hook.remove()

    def _read(self, head: Any, inputs: tuple[Any, ...]) -> Any:
        if not self._running:
            return None
        self._hidden = inputs[0]
        return (inputs[0][:, -1:], *inputs[1:]) if self._last_only else None
