"""`medusa config`: the settings in force and where each came from."""

from __future__ import annotations

import os

import click

from medusakit.cli.app import App, current_app
from medusakit.cli.group import Group
from medusakit.cli.options import json_option, settings
from medusakit.config import KEYS, Key, config_path, stray_variables, template
from medusakit.errors import CacheError, UsageError


@click.group(cls=Group)
def config() -> None:
    """Settings: flag, then environment variable, then file, then artifact, then default."""


@config.command()
@settings(*KEYS)
@json_option
def show(json_file: str | None) -> None:
    """Every setting, its value and where it came from. Takes any flag, to see what it would change."""
    from medusakit.cli.ui import write_json

    app = current_app()
    if json_file:
        write_json(app.ui, json_file, {key.name: _entry(app, key) for key in KEYS.values()})
    if json_file != "-":
        rows = [(key.name, _shown(app, key), _origin(app, key), key.env) for key in KEYS.values()]
        app.ui.table("", ("setting", "value", "from", "variable"), rows, text=4)
    for name in stray_variables(os.environ):
        app.ui.warn(f"{name} is set but means nothing to medusa")


@config.command()
def path() -> None:
    """Where the configuration file is looked for."""
    app = current_app()
    app.ui.line(str(app.given_file or config_path(os.environ)))


@config.command()
@click.option("--force", is_flag=True, help="Overwrite a file that is there.")
def init(force: bool) -> None:
    """Write a configuration file with every setting, commented out, at its default."""
    app = current_app()
    target = app.given_file or config_path(os.environ)
    if target.exists() and not force:
        raise UsageError(f"{target} exists", hint="medusa config init --force")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(template(), encoding="utf-8")
    except OSError as error:
        raise CacheError(f"cannot write {target}: {error.strerror}", hint="set MEDUSA_CONFIG to another path") from None
    app.ui.line(str(target))


def _entry(app: App, key: Key) -> dict[str, object]:
    origin = app.resolved.origins[key.name]
    value = getattr(app.config, key.name)
    return {"value": value, "source": origin.source, "where": origin.where, "variable": key.env, "flag": key.flag}


def _shown(app: App, key: Key) -> str:
    value = getattr(app.config, key.name)
    return "-" if value in (None, ()) else str(value)


def _origin(app: App, key: Key) -> str:
    origin = app.resolved.origins[key.name]
    return f"{origin.source} {origin.where}".strip()
