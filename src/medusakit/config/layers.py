"""The settings of a call, merged from their sources: flag, environment variable, file, artifact, default.

Knows nothing of commands, and reads no environment by itself: mappings and paths come in as arguments.

>>> resolve({"temperature": "0.8"}, env={"MEDUSA_SEED": "7"}).config.temperature
0.8
"""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from medusakit.config.fields import Config
from medusakit.config.key import KEYS, PREFIX, Key, nearest
from medusakit.config.origin import Origin, Source
from medusakit.errors import ConfigError

RESERVED = frozenset({"MEDUSA_HOME", "MEDUSA_CONFIG", "MEDUSA_DEBUG", "MEDUSA_API_KEY"})


@dataclass(frozen=True, slots=True)
class Resolved:
    config: Config
    origins: Mapping[str, Origin]


def resolve(
    flags: Mapping[str, Any],
    *,
    env: Mapping[str, str],
    file: Path | None = None,
    artifact: Mapping[str, Any] | None = None,
    artifact_path: str = "",
) -> Resolved:
    """Merge the layers, lowest first. flags: field name -> text as typed, bool, or list. Raises ConfigError."""
    values: dict[str, Any] = {}
    origins = dict.fromkeys(KEYS, Origin("default"))
    layers: tuple[tuple[Source, Iterable[tuple[str, str, Any]]], ...] = (
        ("artifact", _artifact_layer(artifact or {}, artifact_path)),
        ("file", _file_layer(file)),
        ("env", _env_layer(env)),
        ("flag", ((KEYS[name].flag, name, _typed(KEYS[name], raw)) for name, raw in flags.items())),
    )
    for source, layer in layers:
        for where, name, value in layer:
            values[name] = value
            origins[name] = Origin(source, where)
    return Resolved(replace(Config(), **values), origins)


def config_path(env: Mapping[str, str]) -> Path:
    """MEDUSA_CONFIG, or config.toml in the user's configuration folder."""
    if given := env.get("MEDUSA_CONFIG"):
        return Path(given)
    base = env.get("XDG_CONFIG_HOME") or str(Path.home() / ".config")
    return Path(base) / "medusakit" / "config.toml"


def stray_variables(env: Mapping[str, str]) -> list[str]:
    """MEDUSA_* variables that mean nothing here. Not an error: container platforms inject such names for services."""
    known = RESERVED | {key.env for key in KEYS.values()}
    return sorted(name for name in env if name.startswith(PREFIX) and name not in known)


def _typed(key: Key, raw: Any) -> Any:
    return key.parse(raw, key.flag) if isinstance(raw, str) else key.check(raw, key.flag)


def _file_layer(file: Path | None) -> Iterable[tuple[str, str, Any]]:
    if file is None:
        return
    content = _read(file)
    for name, value in content.items():
        if name not in KEYS:
            raise _unknown(f"{file}: unknown key `{name}`", nearest(name, KEYS))
        yield str(file), name, KEYS[name].check(value, f"{file}: {name}", KEYS[name].line("{value}"))


def _read(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        message, hint = f"there is no configuration file {file}", f"medusa config init --config {file}   writes one"
    except OSError as error:
        message, hint = f"cannot read the configuration file {file}: {error.strerror}", f"ls -ld {file}"
    except ValueError as error:  # not UTF-8, not TOML
        what = "UTF-8 text" if isinstance(error, UnicodeDecodeError) else f"TOML: {error}"
        message, hint = f"the configuration file {file} is not {what}", 'lines such as: model = "smollm2"'
    raise ConfigError(message, hint=hint)


def _env_layer(env: Mapping[str, str]) -> Iterable[tuple[str, str, Any]]:
    by_env = {key.env: key for key in KEYS.values()}
    for variable in stray_variables(env):
        if close := difflib.get_close_matches(variable, by_env, n=1, cutoff=0.85):
            raise _unknown(f"unknown environment variable {variable}", close[0])
    for variable, key in by_env.items():
        if env.get(variable):  # an empty variable counts as unset, as shells and containers mean it
            yield variable, key.name, key.parse(env[variable], variable, "{where}={value}")


def _artifact_layer(artifact: Mapping[str, Any], path: str) -> Iterable[tuple[str, str, Any]]:
    allowed = [name for name, key in KEYS.items() if key.setting.artifact]
    for name, value in artifact.items():
        if name not in allowed:
            raise _unknown(f"{path}: an artifact cannot set `{name}`", nearest(name, allowed))
        yield path, name, KEYS[name].check(value, f"{path}: {name}", KEYS[name].line("{value}"))


def _unknown(message: str, close: str | None) -> ConfigError:
    return ConfigError(message, hint=close if close else "medusa config show")
