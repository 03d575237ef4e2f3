"""The tuned model as a normal model folder: the adapter's product added to the weights, tokenizer and config beside."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from safetensors import SafetensorError
from torch import Tensor

from medusakit.artifact.files import make_folder
from medusakit.artifact.io import MANIFEST
from medusakit.artifact.schema import ArtifactManifest
from medusakit.errors import ModelError, RuntimeFailure, UsageError
from medusakit.models.resolve import ResolvedModel
from medusakit.text.tokenizer import Tokenizer, load_tokenizer

HEADS = "medusa"  # folder of the heads within the model's
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


def check_out(out: Path, model: Path) -> None:
    """Whether OUT can be written and what is there may go: before hours of training, not after them.

    model  the folder or file that is trained
    Raises UsageError for a folder that holds anything else than what an earlier run wrote, or the model itself;
    RuntimeFailure where nothing can be written.
    """
    make_folder(out.parent)
    if out.exists() and (out.resolve() == model.resolve() or not (out.is_dir() and _replaceable(out))):
        message = f"{out} exists and was not written by medusa train joint, so it will not be replaced"
        raise UsageError(message, hint="give another --out")
    if not os.access(out.parent, os.W_OK):
        raise RuntimeFailure(f"cannot write {out}", hint="choose a folder that you may write to")


def _replaceable(folder: Path) -> bool:
    if not any(folder.iterdir()):
        return True
    try:
        manifest = ArtifactManifest.model_validate_json((folder / HEADS / MANIFEST).read_bytes())
    except (OSError, ValidationError):
        return False
    return manifest.provenance.metrics.get("joint") is True


def save_merged(adapted: Any, resolved: ResolvedModel, folder: Path) -> None:
    """Write the model with its adapter merged (W + alpha / r * B A, float32), which ends the adapter.

    adapted   what `with_adapter` made
    resolved  the files of the model as it was, of which the tokenizer comes
    Raises ModelError where the tokenizer written there would not be the model's own, OSError and RuntimeFailure where
    the disk is full.
    """
    model = adapted.merge_and_unload()
    _forget_format(model)
    try:
        model.save_pretrained(folder)
    except SafetensorError as cause:  # it has no OSError of its own
        raise RuntimeFailure(
            f"cannot write the weights: {cause}", hint="free some space; what was trained is kept"
        ) from cause
    for file in folder.glob("*.safetensors"):  # which are written for their owner alone
        shutil.copymode(folder / "config.json", file)
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
