"""The tuned model as a normal model folder: the adapter's product added to the weights, tokenizer and config beside."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from torch import Tensor

from medusakit.errors import ModelError
from medusakit.models.resolve import ResolvedModel
from medusakit.text.tokenizer import Tokenizer, load_tokenizer

_TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "chat_template.jinja",
                    "added_tokens.json", "vocab.json", "merges.txt", "tokenizer.model")  # fmt: skip
_PROBES = (
    "Hello  world\n\n12345 don't",
    "def f(x):\n\treturn x**2  # ok",
    "naïve 漢字 🙂 ½",
    "<|im_start|>user\nHi<|im_end|>",
)


def trained_part(trained: dict[str, Tensor], part: str) -> dict[str, Tensor]:
    """What belongs to one part of a `JointNet`, "backbone" or "heads", by its name there."""
    begin = f"{part}."
    return {name.removeprefix(begin): value for name, value in trained.items() if name.startswith(begin)}


def save_merged(adapted: Any, resolved: ResolvedModel, folder: Path) -> None:
    """Write the model with its adapter merged (W + alpha / r * B A, float32), which ends the adapter.

    adapted   what `with_adapter` made
    resolved  the files of the model as it was, of which the tokenizer comes
    Raises ModelError where the tokenizer written there would not be the model's own.
    """
    model = adapted.merge_and_unload()
    _forget_format(model)
    model.save_pretrained(folder)
    save_tokenizer(resolved, folder)


def _forget_format(model: Any) -> None:
    """A GGUF's reader leaves float32 weights, and a note that they are quantised, with which nothing can be saved."""
    model.hf_quantizer = None
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config


def save_tokenizer(resolved: ResolvedModel, folder: Path) -> None:
    """The tokenizer's files beside a config.json: those of a folder copied; a GGUF's by transformers, which loses how
    some of them split text, so that part is written as this package reads it. Raises ModelError if ids would differ.
    """
    own = load_tokenizer(resolved)
    if resolved.kind == "gguf":
        from transformers import AutoTokenizer

        AutoTokenizer.from_pretrained(resolved.path.parent, gguf_file=resolved.path.name).save_pretrained(folder)
        file, rules = folder / "tokenizer.json", json.loads(own.rules)
        written = json.loads(file.read_text(encoding="utf-8"))
        written |= {key: rules[key] for key in ("normalizer", "pre_tokenizer", "model")}
        # transformers adds tokens of its own where it thinks that one is missing
        written["added_tokens"] = [token for token in written["added_tokens"] if token["id"] < own.vocab_size]
        file.write_text(json.dumps(written, ensure_ascii=False), encoding="utf-8")
    else:
        for name in _TOKENIZER_FILES:
            if (resolved.path / name).is_file():
                shutil.copy(resolved.path / name, folder / name)
    again = load_tokenizer(ResolvedModel(str(folder), folder, "hf"))
    if _told(own) != _told(again):
        raise ModelError(
            f"the tokenizer of {resolved.path} cannot be written as a folder's: it would give other ids",
            hint="train from the model's Hugging Face folder, whose tokenizer.json is copied",
        )


def _told(tokenizer: Tokenizer) -> tuple[object, ...]:
    """What two tokenizers of one model agree on."""
    probes = [tokenizer.encode(text, add_special=True, parse_special=True) for text in _PROBES]
    return tokenizer.hash, tokenizer.chat_template, tokenizer.eos_ids, tokenizer.bos_id, probes
