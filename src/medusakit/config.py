"""Settings from one source: a field of `Config` gives flag, environment variable, TOML key and docs row.

A value comes from the first of: flag, environment variable, file, artifact, default. Knows nothing of commands, and
reads no environment by itself: mappings and paths come in as arguments.

>>> resolve({"temperature": "0.8"}, env={"MEDUSA_SEED": "7"}).config.temperature
0.8
"""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

from medusakit.errors import ConfigError

Source = Literal["flag", "env", "file", "artifact", "default"]
PREFIX = "MEDUSA_"
RESERVED = frozenset({"MEDUSA_HOME", "MEDUSA_CONFIG", "MEDUSA_DEBUG"})


@dataclass(frozen=True, slots=True)
class Setting:
    """What a field says about itself. low, high: inclusive bounds. artifact: a heads folder may recommend a value."""

    help: str
    section: str
    flags: tuple[str, ...] = ()
    choices: tuple[str, ...] = ()
    low: float | None = None
    high: float | None = None
    artifact: bool = False


def _setting(default: Any, section: str, help: str, *flags: str, **bounds: Any) -> Any:
    """A dataclass field that carries its `Setting`."""
    return field(default=default, metadata={"setting": Setting(help, section, flags, **bounds)})


@dataclass(frozen=True, slots=True)
class Config:
    """Every setting with its default. See `KEYS` for the names derived from them."""

    model: str = _setting("smollm2", "model", "alias, file, folder or hub id of the model", "-m")
    heads: str = _setting("auto", "model", "artifact folder, `auto` (find one that fits) or `none`")
    drafter: str | None = _setting(
        None, "model", "medusa, hydra, cnn_lstm or ssm, of the heads that fit; suffix or recycling, which need no heads"
    )
    weights: str = _setting(
        "auto", "model", "format the weights run in; auto follows the file", choices=("auto", "f32", "int8", "int4")
    )
    threads: int | None = _setting(None, "model", "threads of the runtime; all cores if unset", low=1, high=1024)
    max_context: int | None = _setting(None, "model", "positions a row may hold; the model's limit if unset", low=8)
    offline: bool = _setting(False, "model", "never ask the network")

    system: str | None = _setting(None, "answer", "system message", "-s")
    max_tokens: int = _setting(512, "answer", "most tokens of an answer", "-n", low=1)
    stop: tuple[str, ...] = _setting((), "answer", "end before this text; may be given several times")
    seed: int | None = _setting(None, "answer", "seed of sampling; a fresh one if unset", low=0)
    temperature: float = _setting(0.0, "answer", "0 is greedy", "--temp", low=0.0, high=100.0)
    top_p: float = _setting(1.0, "answer", "keep the smallest set of tokens with this probability", low=0.0, high=1.0)
    top_k: int = _setting(0, "answer", "keep this many tokens; 0 keeps all", low=0)
    min_p: float = _setting(0.0, "answer", "drop tokens under this share of the best one's", low=0.0, high=1.0)
    repetition_penalty: float = _setting(1.0, "answer", "divide the scores of tokens seen before", low=0.01, high=100.0)
    presence_penalty: float = _setting(0.0, "answer", "lower the scores of tokens seen before", low=-2.0, high=2.0)
    frequency_penalty: float = _setting(0.0, "answer", "the same, times how often", low=-2.0, high=2.0)

    speculation: bool = _setting(True, "speculation", "draft tokens ahead; off is plain decoding")
    accept: str = _setting(
        "exact", "speculation", "exact keeps the model's own output; typical is lossy", choices=("exact", "typical")
    )
    budget: int | None = _setting(
        None, "speculation", "nodes of a step, root included; measured if unset", low=1, high=256, artifact=True
    )
    tree: str = _setting("auto", "speculation", "auto (calibrated), or a dense tree DxB, e.g. 2x3", artifact=True)

    highlight: str = _setting(
        "auto", "terminal", "which tokens to mark in the answer", choices=("auto", "accepted", "step", "none")
    )
    stream: bool = _setting(True, "terminal", "show the answer while it is made")


@dataclass(frozen=True, slots=True)
class Key:
    """One setting under its three outside names. kind: str, int, float, bool or list (of str)."""

    name: str
    kind: str
    optional: bool
    default: Any
    setting: Setting

    @property
    def env(self) -> str:
        return PREFIX + self.name.upper()

    @property
    def flag(self) -> str:
        return "--" + self.name.replace("_", "-")

    def parse(self, text: str, where: str, form: str = "{where} {value}") -> Any:
        """The value of `text` (a flag or an environment variable). Raises ConfigError that names `where`.

        form  how a value is given there, for the hint
        """
        if self.kind == "list":
            return (text,)
        if self.kind == "bool":
            return self.check(_BOOLS.get(text.strip().lower(), text), where, form)
        try:
            value: Any = {"int": int, "float": float}.get(self.kind, str)(text)
        except ValueError:
            value = text
        return self.check(value, where, form)

    def check(self, value: Any, where: str, form: str = "{where} {value}") -> Any:
        """`value` in the field's type and range. Raises ConfigError: where, which value, what was expected."""
        if isinstance(value, list | tuple) and self.kind == "list" and all(isinstance(item, str) for item in value):
            return tuple(value)
        if self.kind == "list" and isinstance(value, str):
            return (value,)
        if self.kind == "float" and type(value) is int:
            value = float(value)
        expected = {"str": str, "int": int, "float": float, "bool": bool}.get(self.kind)
        if expected is None or type(value) is not expected or not self._within(value):
            hint = form.format(where=where, value=self._example())
            raise ConfigError(f"{where}: {value!r} is not {self.expectation()}", hint=hint)
        return value

    def expectation(self) -> str:
        """What a value must be, in words."""
        setting = self.setting
        if setting.choices:
            return "one of " + ", ".join(setting.choices)
        noun = {"str": "a text", "int": "a whole number", "float": "a number", "bool": "true or false"}
        text = noun.get(self.kind, "a list of texts")
        if setting.low is not None and setting.high is not None:
            return f"{text} from {setting.low:g} to {setting.high:g}"
        return text if setting.low is None else f"{text} from {setting.low:g} up"

    def _within(self, value: Any) -> bool:
        setting = self.setting
        if setting.choices and value not in setting.choices:
            return False
        if self.kind not in ("int", "float"):
            return True
        return (setting.low is None or value >= setting.low) and (setting.high is None or value <= setting.high)

    def line(self, value: str) -> str:
        """The setting in a file, with the value as a person types it."""
        return f'{self.name} = "{value}"' if self.kind == "str" else f"{self.name} = {value}"

    def _example(self) -> str:
        if self.kind == "bool":
            return str(self.default).lower()
        fallback = "TEXT" if self.kind in ("str", "list") else f"{self.setting.low or 0:g}"
        return str(self.default) if self.default not in (None, ()) else fallback


_BOOLS: Mapping[str, bool] = dict.fromkeys(("1", "true", "yes", "on"), True) | dict.fromkeys(
    ("0", "false", "no", "off"), False
)


def _keys() -> dict[str, Key]:
    found = {}
    for item in fields(Config):
        kind = str(item.type).removesuffix(" | None")
        kind = "list" if kind.startswith("tuple") else kind
        optional = str(item.type).endswith("| None")
        found[item.name] = Key(item.name, kind, optional, item.default, item.metadata["setting"])
    return found


KEYS: Mapping[str, Key] = _keys()


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a value came from. where: the flag, the variable or the file."""

    source: Source
    where: str = ""


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


def named_by_origin(text: str, origins: Mapping[str, Origin]) -> str:
    """A message that speaks of flags, with the variable or the line of a file where that is where the value is.

    Commands in it are left alone: what they say with a flag overrides the others.
    >>> named_by_origin("--tree 9x9 is 9 deep", {"tree": Origin("env", "MEDUSA_TREE")})
    'MEDUSA_TREE=9x9 is 9 deep'
    """
    message, command, rest = text.partition("medusa ")
    for name, origin in origins.items():
        if origin.source in ("env", "file"):
            flag = re.compile(rf"{KEYS[name].flag}(?![\w-])(?: (?P<value>[\w.]+)(?=\s|$|,|;))?")
            message = flag.sub(partial(_in_place, KEYS[name], origin), message)
    return message + command + rest


def _in_place(key: Key, origin: Origin, found: re.Match[str]) -> str:
    value = found["value"]
    if origin.source == "env":
        return key.env if value is None else f"{key.env}={value}"
    return f"{key.name if value is None else key.line(value)} in {origin.where}"


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


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name that was probably meant."""
    found = difflib.get_close_matches(name, list(known), n=1, cutoff=0.6)
    return found[0] if found else None


def template() -> str:
    """A config.toml with every key, commented out, at its default."""
    lines = ["# Settings of medusakit. A flag or a MEDUSA_* variable overrides a line of this file.", ""]
    for key in KEYS.values():
        lines += [f"# {key.setting.help} ({key.expectation()})", f"# {key.name} = {_line(key)}", ""]
    return "\n".join(lines)


def _typed(key: Key, raw: Any) -> Any:
    return key.parse(raw, key.flag) if isinstance(raw, str) else key.check(raw, key.flag)


def _file_layer(file: Path | None) -> Iterable[tuple[str, str, Any]]:
    if file is None:
        return
    try:
        content = tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"cannot read the configuration file {file}: {error}", hint="medusa config init") from None
    for name, value in content.items():
        if name not in KEYS:
            raise _unknown(f"{file}: unknown key `{name}`", nearest(name, KEYS))
        yield str(file), name, KEYS[name].check(value, f"{file}: {name}", KEYS[name].line("{value}"))


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


def _line(key: Key) -> str:
    if key.default is not None:
        return _toml(key.default)
    return f"{_toml('...') if key.kind == 'str' else round(key.setting.low or 0)}  # unset by default"


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return "[" + ", ".join(_toml(item) for item in value) + "]"
    return f'"{value}"' if isinstance(value, str) else repr(value)
