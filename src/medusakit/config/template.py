"""A configuration file with every setting, for `medusa config init`."""

from __future__ import annotations

from typing import Any

from medusakit.config.key import KEYS, Key


def template() -> str:
    """A config.toml with every key, commented out, at its default."""
    lines = ["# Settings of medusakit. A flag or a MEDUSA_* variable overrides a line of this file.", ""]
    for key in KEYS.values():
        lines += [f"# {key.setting.help} ({key.expectation()})", f"# {key.name} = {_line(key)}", ""]
    return "\n".join(lines)


def _line(key: Key) -> str:
    if key.default is not None:
        return _toml(key.default)
    text = next(iter(key.setting.choices), "...")
    return f"{_toml(text) if key.kind == 'str' else round(key.setting.low or 0)}  # unset by default"


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return "[" + ", ".join(_toml(item) for item in value) + "]"
    return f'"{value}"' if isinstance(value, str) else repr(value)
