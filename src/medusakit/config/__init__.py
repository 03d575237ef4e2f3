"""Settings from one source: a field of `Config` gives flag, environment variable, TOML key and docs row."""

from medusakit.config.fields import Config
from medusakit.config.key import KEYS, Key, nearest
from medusakit.config.layers import Resolved, config_path, resolve, stray_variables
from medusakit.config.origin import Origin, named_by_origin
from medusakit.config.template import template

__all__ = [
    "KEYS",
    "Config",
    "Key",
    "Origin",
    "Resolved",
    "config_path",
    "named_by_origin",
    "nearest",
    "resolve",
    "stray_variables",
    "template",
]
