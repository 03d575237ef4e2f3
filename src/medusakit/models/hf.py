"""A Hugging Face folder (config.json and safetensors, one file or shards with an index) as a WeightSource."""

from __future__ import annotations

import json
from collections.abc import Iterable
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from medusakit.errors import FETCH_AGAIN, GIVE_A_MODEL, ModelError
from medusakit.models.dequant import to_f32
from medusakit.models.fingerprint import fingerprint_files
from medusakit.models.finite import check_finite
from medusakit.models.hf_spec import spec_from_config, text_config
from medusakit.models.layout import check_tensors, locate, split_name
from medusakit.models.safetensors_file import SafetensorsFile
from medusakit.models.spec import ModelSpec, StoredTensor

_SINGLE, _INDEX = "model.safetensors", "model.safetensors.index.json"
_LAYER = {
    "attn_norm": "input_layernorm.weight",
    "q": "self_attn.q_proj.weight",
    "k": "self_attn.k_proj.weight",
    "v": "self_attn.v_proj.weight",
    "qkv": "self_attn.qkv_proj.weight",
    "q_bias": "self_attn.q_proj.bias",
    "k_bias": "self_attn.k_proj.bias",
    "v_bias": "self_attn.v_proj.bias",
    "q_norm": "self_attn.q_norm.weight",
    "k_norm": "self_attn.k_norm.weight",
    "o": "self_attn.o_proj.weight",
    "ffn_norm": "post_attention_layernorm.weight",
    "gate": "mlp.gate_proj.weight",
    "up": "mlp.up_proj.weight",
    "gate_up": "mlp.gate_up_proj.weight",
    "down": "mlp.down_proj.weight",
}
_SANDWICH = {
    "post_attn_norm": "post_attention_layernorm.weight",
    "ffn_norm": "pre_feedforward_layernorm.weight",
    "post_ffn_norm": "post_feedforward_layernorm.weight",
}
# (before the layers, before the head): plain models, and the two ways in which vision models nest their text part
_PREFIXES = (("model.", ""), ("language_model.model.", "language_model."), ("model.language_model.", ""))
_VISION = ("vision_tower.", "multi_modal_projector.", "model.vision_tower.", "model.multi_modal_projector.")


class HfSource:
    """Weights of one folder, memory-mapped, under our names. Raises ModelError if it is not a whole model."""

    def __init__(self, path: Path) -> None:
        self.path = path
        config, nested = text_config(_read_json(path / "config.json"), path)
        self._spec = spec_from_config(config, path)
        self._files = [SafetensorsFile(file) for file in weight_files(path)]
        self._homes = {name: file for file in self._files for name in file.entries}
        self._places = locate(self._spec, _scheme(self._spec, self._homes))
        check_tensors(
            self._spec,
            self._places,
            {name: file.entries[name].shape for name, file in self._homes.items()},
            ignored=_ignored(self._spec, self._homes, nested),
            where=str(path),
        )

    @property
    def spec(self) -> ModelSpec:
        return self._spec

    @cached_property
    def fingerprint(self) -> str:
        return fingerprint_files([file.path for file in self._files])

    @property
    def default_weights(self) -> str:
        """Always f32: it keeps every float format that such a folder stores."""
        return "f32"

    def names(self) -> Iterable[str]:
        return self._places.keys()

    def tensor(self, name: str) -> StoredTensor:
        """One tensor. Raises ModelError where a weight is NaN or infinite."""
        place = self._places[name]
        tensor = place.take(self._homes[place.stored].tensor(place.stored), name)
        check_finite(tensor)
        if self._spec.family == "gemma3" and "norm" in split_name(name)[1]:
            # gemma multiplies by 1 + w; ours are ready to multiply
            return StoredTensor(name, "f32", tensor.shape, to_f32(tensor) + np.float32(1.0))
        return tensor


def _read_json(path: Path) -> dict[str, Any]:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ModelError(
            f"cannot read {path}: {error.strerror or error}",
            hint=f"ls -l {path}",
        ) from error
    except ValueError as error:
        raise ModelError(f"{path} is not JSON: {error}", hint=FETCH_AGAIN) from None
    if not isinstance(data, dict):
        raise ModelError(f"{path} is not a JSON object", hint=FETCH_AGAIN)
    return data


def weight_files(path: Path) -> list[Path]:
    """The safetensors files, each checked to exist. An index goes before a single file, as in transformers."""
    if (path / _INDEX).is_file():
        shards = _read_json(path / _INDEX).get("weight_map")
        if not isinstance(shards, dict) or not shards:
            raise ModelError(
                f"{path / _INDEX} has no weight_map",
                hint=FETCH_AGAIN,
            )
        files = [path / str(name) for name in sorted(set(shards.values()))]
        if missing := [file.name for file in files if not file.is_file()]:
            raise ModelError(
                f"{path} lacks {len(missing)} of {len(files)} shards: {', '.join(missing)}",
                hint=f"hf download OWNER/NAME --local-dir {path}   fetches what is missing",
            )
        return files
    if (path / _SINGLE).is_file():
        return [path / _SINGLE]
    pickled = sorted(file.name for file in path.glob("pytorch_model*.bin"))
    note = f"; {pickled[0]} is a pickle, which is not read" if pickled else ""
    raise ModelError(
        f"{path} has neither {_SINGLE} nor {_INDEX}{note}",
        hint="save_pretrained(folder) of transformers writes safetensors" if pickled else GIVE_A_MODEL,
    )


def _scheme(spec: ModelSpec, stored: Iterable[str]) -> dict[str, str]:
    names = set(stored)
    body, head = next((pair for pair in _PREFIXES if pair[0] + "embed_tokens.weight" in names), _PREFIXES[0])
    layer = _LAYER | (_SANDWICH if spec.sandwich_norms else {})
    return {
        "embed": f"{body}embed_tokens.weight",
        **{key: f"{body}layers.{{i}}.{name}" for key, name in layer.items()},
        "final_norm": f"{body}norm.weight",
        "lm_head": f"{head}lm_head.weight",
    }


def _ignored(spec: ModelSpec, stored: Iterable[str], nested: bool) -> list[str]:
    """Tensors that may lie there unused: a tied copy of the head, old rotary buffers, a vision tower."""
    return [
        name
        for name in stored
        if (spec.tied_embeddings and name.endswith("lm_head.weight"))
        or name.endswith("rotary_emb.inv_freq")
        or (nested and name.startswith(_VISION))
    ]
