"""From a name to a draft model that fits: the same vocabulary, or it would speak of other tokens."""

from __future__ import annotations

from math import prod

from medusakit.drafters.draft_model.drafter import DraftModelDrafter
from medusakit.errors import UnsupportedModelError
from medusakit.models.resolve import open_weights, resolve
from medusakit.models.spec import ModelSpec
from medusakit.runtimes.onnx.runtime import load_onnx
from medusakit.text.tokenizer import Tokenizer, load_tokenizer


def load_draft_model(
    name: str,
    spec: ModelSpec,
    tokenizer: Tokenizer,
    *,
    threads: int | None = None,
    max_rows: int = 1,
    offline: bool = False,
) -> DraftModelDrafter:
    """A second model as drafter, in the weight format of its file.

    name             alias, path, .gguf, folder or hub id, as for the model itself
    spec, tokenizer  of the model that it drafts for
    Raises UnsupportedModelError for another vocabulary, ModelError for what is no model.
    """
    resolved = resolve(name, offline=offline)
    source = open_weights(resolved)
    _check_vocabulary(name, spec, source.spec, tokenizer, load_tokenizer(resolved))
    tensors = [source.tensor(name) for name in source.names()]
    return DraftModelDrafter(
        load_onnx(source, threads=threads, max_rows=max_rows),
        num_params=sum(prod(tensor.shape) for tensor in tensors),
        num_bytes=sum(tensor.raw.nbytes for tensor in tensors),
    )


def _check_vocabulary(
    name: str, spec: ModelSpec, own: ModelSpec, tokenizer: Tokenizer, own_tokenizer: Tokenizer
) -> None:
    pairs = (
        ("a vocabulary of", own.vocab_size, spec.vocab_size),
        ("the tokenizer", own_tokenizer.hash[:12], tokenizer.hash[:12]),
    )
    for what, found, expected in pairs:
        if found != expected:
            raise UnsupportedModelError(
                f"{name} cannot draft for {spec.name}: it has {what} {found}, the model {expected}",
                hint="--draft-model with a smaller model of the same family, or --drafter suffix, which needs none",
            )
