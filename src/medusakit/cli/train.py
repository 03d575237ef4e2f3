"""`medusa train`: heads for a model, stage by stage or all at once. Every stage goes on where it stopped."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from medusakit.cli.app import App, current_app
from medusakit.cli.drawing import draw
from medusakit.cli.group import Decorated, Group
from medusakit.cli.joint import joint
from medusakit.cli.options import json_option, settings
from medusakit.errors import MissingExtraError

if TYPE_CHECKING:
    from medusakit.train.pipeline import Pipeline
    from medusakit.train.recipe import Recipe

ALL = ("seeds", "distill", "capture", "heads", "calibrate", "tree", "artifact")
FAMILIES = ("hydra", "medusa", "context", "cnn_lstm", "ssm")
NEED_TORCH = frozenset({"heads", "calibrate", "tree"})
STAGE_HELP = {
    "seeds": "Collect prompts for the model, none of a benchmark.",
    "distill": "Let the model answer them, keeping its hidden states.",
    "capture": "Add answers that exist, with their hidden states.",
    "heads": "Train the drafter on those answers.",
    "calibrate": "Measure how often guesses are right, on held-out answers.",
    "tree": "Grow the tree, say what it is worth, write the heads.",
    "all": "Every stage in order; finished ones are skipped.",
}

_TOKENS = "Tokens of answers to make, at least; the recipe's if unset, 150,000 without one."
_EPOCHS = "Passes over the answers; the recipe's if unset, 3 without one."


@dataclass(frozen=True, slots=True)
class Where:
    """What the options of a stage name."""

    recipe: Path | None
    work: Path | None
    out: Path
    family: str | None
    tokens: int | None
    epochs: float | None
    endpoint: str | None = None
    endpoint_model: str = ""
    api_key_env: str = ""
    concurrency: int = 16


@click.group(cls=Group)
def train() -> None:
    """Make heads for a model: seeds, distill, capture, heads, calibrate, tree.

    \b
    medusa train all -m smollm2 --out ./heads

    Ctrl-C saves; the same command goes on from there.
    """


def stage_options(command: Decorated) -> Decorated:
    """The options of every stage."""
    path = click.Path(path_type=Path)
    options: list[Callable[[Decorated], Decorated]] = [
        click.option("--recipe", type=path, help="TOML file with every setting of the run."),
        click.option("--out", type=path, default=Path("heads"), help="Folder of the finished heads. [heads]"),
        click.option("--work", type=path, help="Folder of what the stages leave for each other. [OUT-work]"),
        click.option("--family", type=click.Choice(FAMILIES), help="Kind of heads; the recipe's if unset."),
        click.option("--tokens", type=click.IntRange(1000), metavar="N", help=_TOKENS),
        click.option("--epochs", type=click.FloatRange(0.01, 100), metavar="X", help=_EPOCHS),
        settings("model", "threads", "offline"),
    ]
    for option in reversed(options):
        command = option(command)
    return command


def endpoint_options(command: Decorated) -> Decorated:
    """Who answers, if not this machine."""
    options: list[Callable[[Decorated], Decorated]] = [
        click.option("--endpoint", metavar="URL", help="Let this OpenAI-compatible server answer."),
        click.option("--endpoint-model", metavar="NAME", default="", help="Model to ask there; the only one if unset."),
        click.option("--api-key-env", metavar="VAR", default="", help="Variable that holds the server's API key."),
        click.option(
            "--concurrency", type=click.IntRange(1, 1024), default=16, metavar="N", help="Requests at once. [16]"
        ),
    ]
    for option in reversed(options):
        command = option(command)
    return command


def _add(name: str, stages: tuple[str, ...]) -> None:
    answering = endpoint_options if "distill" in stages else _as_it_is

    @train.command(name, help=STAGE_HELP[name])
    @stage_options
    @answering
    @json_option
    def command(json_file: str | None, **options: Any) -> None:
        run_stages(current_app(), Where(**options), stages, json_file)


def _as_it_is(command: Decorated) -> Decorated:
    return command


def run_stages(app: App, where: Where, stages: tuple[str, ...], json_file: str | None) -> None:
    """Run the stages with bars and their expectation lines; Ctrl-C leaves everything ready to go on."""
    from medusakit.cli.stages import StageBars
    from medusakit.cli.ui import write_json

    if NEED_TORCH & set(stages):
        _require_torch()
    recipe = make_recipe(app, where)
    results: dict[str, Any] = {}
    with StageBars(app.ui) as bars:
        pipeline = open_pipeline(app, recipe, where, bars)
        try:
            for stage in stages:
                results[stage] = pipeline.run(stage)
        except KeyboardInterrupt:
            app.ui.note("saved; the same command goes on from here")
            raise
    if json_file:
        write_json(app.ui, json_file, {"stages": results, "recipe": recipe.model_dump(mode="json")})
    if "artifact" in stages:
        app.ui.line(f'next: medusa compare -m {recipe.model} --heads {where.out} "Explain a B-tree in two sentences"')


def make_recipe(app: App, where: Where) -> Recipe:
    """The recipe file (or the defaults) with what the flags say."""
    from medusakit.train.recipe import Recipe, read_recipe

    recipe = read_recipe(where.recipe) if where.recipe else Recipe()
    changes: dict[str, Any] = {}
    if where.recipe is None or app.resolved.origins["model"].source != "default":
        changes["model"] = app.config.model
    if where.tokens:
        changes["distill"] = recipe.distill.model_copy(update={"max_tokens": where.tokens})
    heads = {"family": where.family, "epochs": where.epochs}
    if given := {name: value for name, value in heads.items() if value is not None}:
        changes["heads"] = recipe.heads.model_copy(update=given)
    if where.endpoint:
        from medusakit.train.endpoint_answers import EndpointConfig

        changes["endpoint"] = EndpointConfig(url=where.endpoint, model=where.endpoint_model,
                                             api_key_env=where.api_key_env, concurrency=where.concurrency)  # fmt: skip
    return recipe.model_copy(update=changes)


def open_pipeline(app: App, recipe: Recipe, where: Where, on_progress: Any) -> Pipeline:
    from medusakit.train.pipeline import Pipeline
    from medusakit.train.place import open_model

    with app.ui.status(f"opening {recipe.model}"):
        model = open_model(recipe, threads=app.config.threads, offline=app.config.offline)
    work = where.work or where.out.with_name(f"{where.out.name}-work")
    return Pipeline(recipe, model, work, where.out, on_progress)


def _require_torch() -> None:
    from importlib.util import find_spec

    if find_spec("torch") is None:
        raise MissingExtraError("training needs torch, which is not installed", hint="pip install 'medusakit[train]'")


for _name in ALL[:-2]:
    _add(_name, (_name,))
_add("tree", ("tree", "artifact"))
_add("all", ALL)


@train.command("answers")
@click.argument("file", type=click.Path(path_type=Path), metavar="FILE.jsonl.gz")
@click.option("--work", type=click.Path(path_type=Path), required=True, help="Folder of a finished distill stage.")
@settings("model", "offline")
def answers(file: Path, work: Path) -> None:
    """Write distilled answers as a small file of text and ids.

    Named in a recipe's `capture`, it spares others the distilling: reading answers is three times as fast as making
    them.
    """
    from medusakit.models.resolve import resolve
    from medusakit.text.tokenizer import load_tokenizer
    from medusakit.train.answers import write_answers
    from medusakit.train.dataset import Dataset

    app = current_app()
    tokenizer = load_tokenizer(resolve(app.config.model, offline=app.config.offline))
    num = write_answers(Dataset([work / "distill"]), work / "seeds.jsonl", tokenizer, file)
    app.ui.line(f"{num:,} conversations written to {file}")


train.add_command(draw)
train.add_command(joint)
