"""A loaded transformers model as a `WeightSource`: what drafters read of it, and which heads belong to it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch

from medusakit.errors import ModelError, UnsupportedModelError
from medusakit.models.fingerprint import fingerprint_files
from medusakit.models.hf import weight_files
from medusakit.models.spec import ModelSpec, RopeSpec, StoredTensor
from medusakit.runtimes.torch.model import CausalModel, setting

_FORMATS = {torch.float32: "f32", torch.float16: "f16", torch.bfloat16: "bf16"}
_NO_LIMIT = 1 << 20  # positions, of models that name none (recurrent ones)


class TorchSource:
    """Embedding and LM head of a model in memory. folder: where its files lie, if they do."""

    default_weights = "f32"

    def __init__(self, model: CausalModel, folder: Path | None = None) -> None:
        self._model, self._folder = model, folder
        self._tables = {"embed": model.hf.get_input_embeddings(), "lm_head": model.hf.get_output_embeddings()}
        tied = self._tables["embed"].weight.data_ptr() == self._tables["lm_head"].weight.data_ptr()
        self._spec = spec_of(model, tied=tied)

    @property
    def spec(self) -> ModelSpec:
        return self._spec

    @cached_property
    def fingerprint(self) -> str:
        """Of the files, as of any other reader's; "" of a model without files."""
        if self._folder is None:
            return ""
        try:
            return fingerprint_files(weight_files(self._folder))
        except ModelError:  # pickled: transformers could read it. What is read here stands for all of it
            return self._digest()

    def names(self) -> Iterable[str]:
        return ("embed",) if self._spec.tied_embeddings else tuple(self._tables)

    def tensor(self, name: str) -> StoredTensor:
        """Raises UnsupportedModelError where the table is quantised."""
        weight = self._tables[name].weight.detach()
        if weight.dtype not in _FORMATS:
            raise UnsupportedModelError(
                f"the model keeps its {name} as {weight.dtype}, which drafters cannot read",
                hint="load it with this table left in float",
            )
        weight = weight.cpu().contiguous()
        raw = weight.view(torch.int16).numpy().view(np.uint16) if weight.dtype == torch.bfloat16 else weight.numpy()
        return StoredTensor(name, _FORMATS[weight.dtype], tuple(raw.shape), raw)

    def _digest(self) -> str:
        digest = hashlib.sha256()
        for name in self.names():
            digest.update(np.ascontiguousarray(self.tensor(name).raw).tobytes())
        return digest.hexdigest()


def spec_of(model: CausalModel, *, tied: bool) -> ModelSpec:
    """What can be told of any model; of features that only other runtimes build on, the plainest."""
    config = model.config
    heads = _number(config, "num_attention_heads", "n_head", default=1)
    layers = _number(config, "num_hidden_layers", "n_layer", "num_layers", default=1)
    head_dim = _number(config, "head_dim", default=max(1, model.hidden_size // heads))
    return ModelSpec(
        family=str(config.model_type),
        name=Path(str(getattr(model.hf, "name_or_path", "") or config.model_type)).name,
        vocab_size=model.vocab_size,
        hidden_size=model.hidden_size,
        num_layers=layers,
        num_heads=heads,
        num_kv_heads=_number(config, "num_key_value_heads", "num_kv_heads", default=heads),
        head_dim=head_dim,
        ffn_size=_number(config, "intermediate_size", "ffn_dim", "n_inner", default=4 * model.hidden_size),
        norm_eps=float(setting(config, "rms_norm_eps") or 1e-5),
        context_length=_number(config, "max_position_embeddings", "n_positions", "max_seq_len", default=_NO_LIMIT),
        rope=RopeSpec(10000.0, head_dim),
        windows=(int(setting(config, "sliding_window") or 0),) * layers,
        tied_embeddings=tied,
    )


def _number(config: Any, *names: str, default: int) -> int:
    """The first of the names that holds a whole number."""
    for name in names:
        value = setting(config, name)
        if isinstance(value, int) and not isinstance(value, bool) and value > 0:
            return value
    return default
