"""`medusa train joint`: the model learns together with its heads (Medusa-2)."""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from medusakit.cli.app import App, current_app
from medusakit.cli.group import Command
from medusakit.cli.options import json_option, settings
from medusakit.errors import MissingExtraError

if TYPE_CHECKING:
    from medusakit.train.pipeline import Pipeline
    from medusakit.train.recipe import Recipe

_PATH = click.Path(path_type=Path)


@click.command("joint", cls=Command)
@click.option("--recipe", type=_PATH, help="TOML file with every setting; its [joint] is of this command.")
@click.option("--out", type=_PATH, default=Path("joint"), help="Folder of the tuned model and its heads. [joint]")
@click.option("--work", type=_PATH, required=True, help="Work folder with distilled answers.")
@click.option("--report/--no-report", default=True, help="End with the quality report. [report]")
@click.option("--naive/--no-naive", default=None, help="Train the naive way too, for the report; the recipe's.")
@settings("model", "threads", "offline")
@json_option
def joint(recipe: Path | None, out: Path, work: Path, report: bool, naive: bool | None, json_file: str | None) -> None:
    """Train heads and model together (Medusa-2), and write both.

    \b
    medusa train seeds --work runs/mine
    medusa train distill --work runs/mine
    medusa train joint --work runs/mine --out ./tuned
    medusa run -m ./tuned "Explain a B-tree in two sentences"

    The model's own answers change: a little, when the report is good. Ctrl-C saves; the same command goes on from
    there. Several devices: accelerate launch -m medusakit train joint ...
    """
    app = current_app()
    for package in ("torch", "transformers", "peft", "accelerate"):
        if find_spec(package) is None:
            raise MissingExtraError(
                f"joint training needs {package}, which is not installed", hint="pip install 'medusakit[torch]'"
            )
    _run(app, _recipe(app, recipe, naive), work, out, ("joint", "quality") if report else ("joint",), json_file)


def _recipe(app: App, file: Path | None, naive: bool | None) -> Recipe:
    """The recipe with what the flags say."""
    from medusakit.train.recipe import Recipe, read_recipe

    recipe = read_recipe(file) if file else Recipe()
    changes: dict[str, Any] = {}
    if file is None or app.resolved.origins["model"].source != "default":
        changes["model"] = app.config.model
    if naive is not None:
        quality = recipe.joint.quality.model_copy(update={"naive": naive})
        changes["joint"] = recipe.joint.model_copy(update={"quality": quality})
    return recipe.model_copy(update=changes)


def _run(app: App, recipe: Recipe, work: Path, out: Path, stages: tuple[str, ...], json_file: str | None) -> None:
    from medusakit.cli.stages import StageBars
    from medusakit.cli.ui import write_json
    from medusakit.train.progress import ignore

    with StageBars(app.ui) as bars:
        # under accelerate's launcher, the first process alone speaks
        pipeline = open_pipeline(app, recipe, work, out, ignore if os.environ.get("RANK", "0") != "0" else bars)
        try:
            results = {stage: pipeline.run(stage) for stage in stages}
        except KeyboardInterrupt:
            app.ui.note("saved; the same command goes on from here")
            raise
    if json_file:
        write_json(app.ui, json_file, {"stages": results, "recipe": recipe.model_dump(mode="json")})
    app.ui.line(f'next: medusa run -m {out} "Explain a B-tree in two sentences"')


def open_pipeline(app: App, recipe: Recipe, work: Path, out: Path, on_progress: Any) -> Pipeline:
    from medusakit.train.pipeline import Pipeline
    from medusakit.train.place import open_model

    with app.ui.status(f"opening {recipe.model}"):
        model = open_model(recipe, threads=app.config.threads, offline=app.config.offline)
    return Pipeline(recipe, model, work, out, on_progress)
