"""What every stage is given: the recipe, the model that it is for, the folder to work in, and whom to tell."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from medusakit.models.resolve import ResolvedModel
from medusakit.models.spec import WeightSource
from medusakit.runtimes.base import Runtime
from medusakit.text.tokenizer import Tokenizer
from medusakit.train.progress import OnProgress
from medusakit.train.recipe import Recipe
from medusakit.train.stages import StageBook


@dataclass(frozen=True, slots=True)
class OpenModel:
    """The model to train for. `runtime(rows)` opens it on this machine; a stage closes what it opened.

    resolved  where its files lie; None for a model of tests
    """

    source: WeightSource
    tokenizer: Tokenizer
    runtime: Callable[[int], Runtime]
    threads: int | None = None
    resolved: ResolvedModel | None = None


@dataclass(frozen=True, slots=True)
class Place:
    """One family being trained in one work folder."""

    recipe: Recipe
    model: OpenModel
    work: Path
    book: StageBook
    on_progress: OnProgress

    @property
    def family(self) -> str:
        return self.recipe.heads.family


def open_model(recipe: Recipe, *, threads: int | None = None, offline: bool = False) -> OpenModel:
    """Resolve and open the recipe's model. Errors as `resolve` and `open_weights` give them."""
    from medusakit.models.resolve import open_weights, resolve
    from medusakit.runtimes.onnx.runtime import load_onnx
    from medusakit.text.tokenizer import load_tokenizer

    resolved = resolve(recipe.model, offline=offline)
    source = open_weights(resolved)
    longest = recipe.distill.max_prompt_tokens + recipe.distill.max_new_tokens + 1

    def runtime(rows: int) -> Runtime:
        context = min(source.spec.context_length, max(longest, 1024))
        return load_onnx(source, weights=recipe.weights, threads=threads, max_rows=rows, max_context=context)

    return OpenModel(source, load_tokenizer(resolved), runtime, threads, resolved)
