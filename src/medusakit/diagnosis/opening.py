"""From names to a case: the heads, the model they are to run on, and something for it to answer."""

from __future__ import annotations

from pathlib import Path

from medusakit.artifact.io import load_artifact
from medusakit.artifact.rope import TurnedSource, aligned
from medusakit.diagnosis.artifact import ANSWER_TOKENS, Case, diagnose
from medusakit.diagnosis.findings import Finding
from medusakit.diagnosis.tensors import TRAIN
from medusakit.errors import ArtifactError
from medusakit.models.resolve import open_weights, resolve
from medusakit.models.spec import RopeSpec
from medusakit.runtimes.base import Runtime
from medusakit.runtimes.onnx.runtime import load_onnx
from medusakit.text.chat import chat_ids
from medusakit.text.tokenizer import Tokenizer, load_tokenizer

PROMPTS = (
    "Explain in simple words how a bicycle stays upright.",
    "Write a short letter that thanks a neighbour for looking after the cat.",
    "What is the difference between a list and a tuple in Python? Give an example.",
    "Name five things to pack for a week in the mountains, and say why.",
    "A train leaves at 9:40 and arrives at 13:05. How long does it travel?",
    "Summarise why bees matter for growing fruit.",
    "Give me a recipe for a vegetable soup for four people.",
    "Tell the beginning of a story about a lighthouse keeper.",
)
_ROOM = 64


def examine_heads(
    folder: Path,
    model: str,
    *,
    weights: str = "auto",
    threads: int | None = None,
    offline: bool = False,
    align: bool = False,
) -> list[Finding]:
    """All findings. align: run the model with the positions that the heads record. Raises ModelError for the model."""
    try:
        artifact = load_artifact(folder)
    except ArtifactError as error:
        return [Finding("artifact", "error", error.message, error.hint or TRAIN)]
    resolved = resolve(model, offline=offline)
    source = open_weights(resolved)
    if align:
        source = aligned(source, artifact)
    tokenizer = load_tokenizer(resolved)
    prompts = [prompt_ids(tokenizer, prompt) for prompt in PROMPTS]
    context = min(source.spec.context_length, max(map(len, prompts)) + ANSWER_TOKENS + _ROOM)

    def open_runtime(weights: str, rope: RopeSpec | None) -> Runtime:
        turned = source if rope is None else TurnedSource(source, rope)
        return load_onnx(turned, weights=weights, threads=threads, max_rows=len(prompts), max_context=context)

    return diagnose(Case(artifact, source, tokenizer, prompts, open_runtime, weights))


def prompt_ids(tokenizer: Tokenizer, prompt: str) -> list[int]:
    """Through the chat template, or as text where the model has none."""
    if tokenizer.chat_template is None:
        return tokenizer.encode(prompt, add_special=True)
    return chat_ids(tokenizer, [{"role": "user", "content": prompt}])
