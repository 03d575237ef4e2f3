"""A setting under its three outside names: flag, environment variable, TOML key; and what its value may be."""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any

from medusakit.config.fields import Config, Setting
from medusakit.errors import ConfigError

PREFIX = "MEDUSA_"


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
            return self.check([text], where, form)
        if self.kind == "bool":
            return self.check(_BOOLS.get(text.strip().lower(), text), where, form)
        try:
            value: Any = {"int": int, "float": float}.get(self.kind, str)(text)
        except ValueError:
            value = text
        return self.check(value, where, form)

    def check(self, value: Any, where: str, form: str = "{where} {value}") -> Any:
        """`value` in the field's type and range. Raises ConfigError: where, which value, what was expected."""
        if self.kind == "list":
            return self._check_texts((value,) if isinstance(value, str) else value, where, form)
        if self.kind == "float" and type(value) is int:
            value = float(value)
        expected = {"str": str, "int": int, "float": float, "bool": bool}.get(self.kind)
        if expected is None or type(value) is not expected or not self._within(value):
            raise self._refusal(f"{value!r} is not {self.expectation()}", where, form)
        return value

    def _check_texts(self, value: Any, where: str, form: str) -> tuple[str, ...]:
        if not isinstance(value, list | tuple) or not all(isinstance(item, str) for item in value):
            raise self._refusal(f"{value!r} is not {self.expectation()}", where, form)
        if "" in value:
            raise self._refusal("a text is empty; expected one character or more", where, form)
        return tuple(value)

    def _refusal(self, problem: str, where: str, form: str) -> ConfigError:
        return ConfigError(f"{where}: {problem}", hint=form.format(where=where, value=self._example()))

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
        if isinstance(value, float) and not math.isfinite(value):
            return False
        return (setting.low is None or value >= setting.low) and (setting.high is None or value <= setting.high)

    def line(self, value: str) -> str:
        """The setting in a file, with the value as a person types it."""
        quoted = {"str": f'"{value}"', "list": f'["{value}"]'}.get(self.kind, value)
        return f"{self.name} = {quoted}"

    def _example(self) -> str:
        if self.kind == "bool":
            return str(self.default).lower()
        text = next(iter(self.setting.choices), "TEXT")
        fallback = text if self.kind in ("str", "list") else f"{self.setting.low or 0:g}"
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


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name that was probably meant: misspelt or cut, not only of some common letters."""
    found = difflib.get_close_matches(name, list(known), n=1, cutoff=0.66)
    return found[0] if found else None
