"""`medusa models`: the model cache."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from medusakit.cli.app import App, current_app
from medusakit.cli.group import Group
from medusakit.cli.options import json_option

if TYPE_CHECKING:
    from medusakit.models.store import Progress, StoredModel


@click.group(cls=Group)
def models() -> None:
    """Models with a short name, kept in MEDUSA_HOME. Any .gguf file or Hugging Face folder works without them."""


@models.command("list")
@json_option
def list_(json_file: str | None) -> None:
    """Every short name, and whether its file is here."""
    from medusakit.cli.ui import write_json
    from medusakit.models.store import list_models

    app, found = current_app(), list_models()
    if json_file:
        write_json(app.ui, json_file, [asdict(model) for model in found])
    if json_file != "-":
        rows = [(model.alias, _size(model), _state(model), model.description) for model in found]
        app.ui.table("", ("name", "size", "state", "what it is"), rows, text=4)


@models.command()
@click.argument("alias", default="smollm2")
def pull(alias: str) -> None:
    """Fetch a model, check its SHA-256 and store it. Does nothing if it is here already."""
    from medusakit.models.store import pull as fetch

    app = current_app()
    with app.ui.byte_progress(f"fetching {alias}") as (bar, task):

        def on_progress(progress: Progress) -> None:
            part = f" {progress.part}/{progress.num_parts}" if progress.num_parts > 1 else ""
            text = f"{progress.stage} {alias}{part}"
            bar.update(task, description=text, completed=progress.done_bytes, total=progress.total_bytes)

        model = fetch(alias, on_progress)
    app.ui.line(str(model.path))


@models.command()
@click.argument("alias")
@json_option
def show(alias: str, json_file: str | None) -> None:
    """What a model is: a short name, a .gguf file or a folder."""
    from medusakit.cli.ui import write_json

    app = current_app()
    about = _describe(app, alias)
    if json_file:
        write_json(app.ui, json_file, about)
    if json_file != "-":
        app.ui.table("", ("property", "value"), [(name, _shown(value)) for name, value in about.items()], text=2)


@models.command()
@click.argument("alias")
def rm(alias: str) -> None:
    """Delete a model's file from the cache, and the graphs that were built from it."""
    from medusakit.models.fingerprint import fingerprint_files
    from medusakit.models.store import remove
    from medusakit.models.store import show as stored
    from medusakit.runtimes.onnx.inventory import graphs_of, remove_graphs

    model = stored(alias)
    graphs = graphs_of(fingerprint_files([model.path])) if model.installed else []
    removed = remove(alias)
    freed = model.num_bytes * model.installed + remove_graphs(graphs)
    current_app().ui.note(f"removed {alias}: {_megabytes(freed)}" if removed else f"{alias} was not here")


@models.command()
@click.option("--all", "everything", is_flag=True, help="Also those that are in use: each is built again when needed.")
def clean(everything: bool) -> None:
    """Delete built graphs that other versions of medusakit left. Models stay."""
    from medusakit.runtimes.onnx.inventory import built_graphs, remove_graphs

    ui, graphs = current_app().ui, built_graphs()
    freed = remove_graphs(graph for graph in graphs if everything or not graph.current)
    kept = sum(graph.num_bytes for graph in graphs) - freed
    ui.note(f"freed {_megabytes(freed)}" + (f"; --all frees {_megabytes(kept)} more" if kept else ""))


@models.command()
@click.argument("alias", required=False)
def path(alias: str | None) -> None:
    """Where a model's file is; without a name, the cache folder."""
    from medusakit.models.store import home, model_path

    current_app().ui.line(str(model_path(alias) if alias else home()))


def _describe(app: App, name: str) -> dict[str, Any]:
    from medusakit.artifact.find import fitting_heads
    from medusakit.models.aliases import ALIASES
    from medusakit.models.resolve import open_weights, resolve
    from medusakit.models.store import show as stored

    about: dict[str, Any] = asdict(stored(name)) if name in ALIASES else {"name": name}
    if about.get("installed") is False:
        return about
    resolved = resolve(name, offline=True)
    source = open_weights(resolved)
    spec = source.spec
    return about | {
        "path": resolved.path,
        "kind": resolved.kind,
        "family": spec.family,
        "layers": spec.num_layers,
        "hidden_size": spec.hidden_size,
        "vocab_size": spec.vocab_size,
        "context": spec.context_length,
        "default_weights": source.default_weights,
        "fingerprint": source.fingerprint,
        "heads": [f"{family}: {folder}" for folder, family in fitting_heads(source, resolved.path)],
    }


def _shown(value: Any) -> str:
    """Lists a line each, truth as a word."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return "\n".join(map(str, value)) or "none"
    return str(value)


def _size(model: StoredModel) -> str:
    return _megabytes(model.num_bytes)


def _megabytes(num_bytes: int) -> str:
    return f"{num_bytes / 1e6:,.0f} MB"


def _state(model: StoredModel) -> str:
    return "here" if model.installed else "medusa models pull " + model.alias
