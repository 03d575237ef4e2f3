"""Flags made from `config.KEYS`, and the --json option."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from medusakit.cli.group import FLAGS_KEY, Decorated
from medusakit.cli.ui import check_json_file
from medusakit.config import KEYS, Key

MODEL = (
    "model",
    "heads",
    "runtime",
    "device_map",
    "weights",
    "drafter",
    "draft_model",
    "threads",
    "max_context",
    "align_position_embed",
    "chat_template",
    "offline",
)
SAMPLING = (
    "max_tokens",
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "repetition_penalty",
    "presence_penalty",
    "frequency_penalty",
    "seed",
    "stop",
    "system",
)
SPECULATION = ("accept", "budget", "tree", "dynamic_tree", "max_leaves", "breaker_rho")
SERVE = (
    "host",
    "port",
    "api_keys",
    "cors",
    "served_name",
    "any_model",
    "max_rows",
    "max_queue",
    "max_body",
    "deadline",
    "drain",
    "prefill_chunk",
    "enable_tree_cache",
    "cache_memory",
    "cache_memory_per_key",
    "kv_cache_sharding",
    "shard_count",
    "metrics_prefix",
    "tool_format",
)
_METAVARS = {"int": "N", "float": "X", "str": "TEXT", "list": "TEXT"}


def settings(*names: str, **own_defaults: object) -> Callable[[Decorated], Decorated]:
    """Options for these settings. Their values reach the command through `App.config`, not as arguments.

    own_defaults  what the command takes where nothing is set; here only for its help
    """

    def add(command: Decorated) -> Decorated:
        for name in reversed(names):
            command = _option(KEYS[name], own_defaults.get(name, KEYS[name].default))(command)
        return command

    return add


def json_option(command: Decorated) -> Decorated:
    """--json FILE, passed to the command as `json_file` (`-` is stdout)."""
    return click.option(
        "--json", "json_file", metavar="FILE", callback=_writable, help="Write the result as JSON; - is stdout."
    )(command)


def _writable(context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    if value is not None:
        check_json_file(value)
    return value


def plots_option(command: Decorated) -> Decorated:
    """--plots FOLDER, passed to the command as `plots`."""
    path = click.Path(file_okay=False, path_type=Path)
    return click.option("--plots", type=path, metavar="FOLDER", help="Draw the result as SVG files there.")(command)


def _option(key: Key, default: object) -> Callable[[Decorated], Decorated]:
    shared: dict[str, Any] = {"expose_value": False, "callback": _keep, "default": None, "help": _help(key, default)}
    flag = key.flag
    if key.kind == "bool":
        names = [f"{flag}/--no-{flag.removeprefix('--')}", *(f" /{off}" for off in key.setting.flags)]
        return click.option(*names, key.name, **shared)
    kind = click.Choice(key.setting.choices) if key.setting.choices else click.STRING
    names = sorted((flag, *key.setting.flags), key=len)
    return click.option(*names, key.name, type=kind, metavar=_metavar(key), multiple=key.kind == "list", **shared)


def _keep(context: click.Context, parameter: click.Parameter, value: Any) -> None:
    if value is not None and value != ():
        assert parameter.name is not None
        context.meta.setdefault(FLAGS_KEY, {})[parameter.name] = value


def _metavar(key: Key) -> str | None:
    return None if key.setting.choices else _METAVARS[key.kind]


def _help(key: Key, default: object) -> str:
    text = key.setting.help[0].upper() + key.setting.help[1:]
    if default is None or default == ():
        return f"{text}."
    return f"{text}. [{('off', 'on')[bool(default)] if key.kind == 'bool' else default}]"
