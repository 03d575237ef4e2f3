"""The rotary settings of a config.json to RopeSpec."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from medusakit.errors import FETCH_AGAIN, ModelError
from medusakit.models.features import refuse_feature
from medusakit.models.spec import RopeSpec

Config = Mapping[str, Any]
_KINDS = "default, linear, llama3, yarn, longrope"


def read_rope(config: Config, rope: Config, head_dim: int, context: int, path: Path) -> RopeSpec:
    """`rope` is rope_parameters or rope_scaling; keys that it lacks are looked up in the config itself.

    `context` is max_position_embeddings. UnsupportedModelError for other scalings (dynamic NTK, ...).
    """
    where = path / "config.json"
    theta = _number({"rope_theta": rope.get("rope_theta") or config.get("rope_theta") or 10_000.0}, "rope_theta", where)
    dim = _rotated(config, rope, head_dim, where)
    kind = rope.get("rope_type", rope.get("type")) or "default"
    if config.get("model_type") == "phi3" and kind in ("su", "yarn"):  # names that early Phi-3 configs gave longrope
        kind = "longrope"
    if kind == "default":
        return RopeSpec(theta, dim)
    # a top-level value goes first: Phi-3 keeps the trained length there, beside a longer maximum
    key = "original_max_position_embeddings"
    original = int(_number({key: config.get(key) or rope.get(key) or context}, key, where))
    if kind == "linear":
        return RopeSpec(theta, dim, "linear", _number(rope, "factor", where))
    if kind == "llama3":
        low, high = (_number(rope, key, where) for key in ("low_freq_factor", "high_freq_factor"))
        return RopeSpec(theta, dim, "llama3", _number(rope, "factor", where), low, high, original)
    if kind == "yarn":
        return _yarn(rope, theta, dim, original, context, where)
    if kind == "longrope":
        return _longrope(rope, theta, dim, original, context, where)
    refuse_feature(where, "rope_type", repr(kind), _KINDS)


def rope_table(value: object, path: Path) -> Config:
    """Rotary settings as a config holds them; none are an empty table."""
    if not isinstance(value or {}, Mapping):
        raise ModelError(
            f"{path}/config.json: the rotary settings are {value!r}, expected a table",
            hint=FETCH_AGAIN,
        )
    return value if isinstance(value, Mapping) else {}


def _rotated(config: Config, rope: Config, head_dim: int, where: Path) -> int:
    """Rotated dimensions of a head. Only phi3's code rotates a part of it."""
    part = rope.get("partial_rotary_factor", config.get("partial_rotary_factor"))
    part = 1.0 if part is None else _number({"partial_rotary_factor": part}, "partial_rotary_factor", where)
    dim = int(head_dim * part)
    if part != 1.0 and config.get("model_type") != "phi3":
        refuse_feature(where, "partial_rotary_factor", part, "1.0 outside phi3")
    if dim < 2 or dim % 2 or dim > head_dim:
        raise ModelError(
            f"{where}: {dim} of {head_dim} dimensions of a head are rotated, expected an even number",
            hint=FETCH_AGAIN,
        )
    return dim


def _number(rope: Config, key: str, where: Path) -> float:
    value = rope.get(key)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < math.inf:
        raise ModelError(
            f"{where}: the rotary setting {key} is {value!r}, expected a positive number",
            hint=FETCH_AGAIN,
        )
    return float(value)


def _optional(rope: Config, key: str, where: Path) -> float | None:
    return None if rope.get(key) is None else _number(rope, key, where)


def _yarn(rope: Config, theta: float, dim: int, original: int, context: int, where: Path) -> RopeSpec:
    if rope.get("truncate", True) is not True:
        refuse_feature(where, "truncate", rope["truncate"], "true")
    factor = _optional(rope, "factor", where) or context / original
    attention = _optional(rope, "attention_factor", where)
    mscale, all_dim = _optional(rope, "mscale", where), _optional(rope, "mscale_all_dim", where)
    if attention is None and mscale and all_dim:  # DeepSeek's two-constant form
        stretch = 0.1 * math.log(factor) if factor > 1 else 0.0
        attention = (mscale * stretch + 1.0) / (all_dim * stretch + 1.0)
    return RopeSpec(
        theta,
        dim,
        "yarn",
        factor,
        original_context=original,
        beta_fast=_optional(rope, "beta_fast", where) or 32.0,
        beta_slow=_optional(rope, "beta_slow", where) or 1.0,
        attention_factor=attention,
    )


def _longrope(rope: Config, theta: float, dim: int, original: int, context: int, where: Path) -> RopeSpec:
    return RopeSpec(
        theta,
        dim,
        "longrope",
        _optional(rope, "factor", where) or context / original,
        original_context=original,
        attention_factor=_optional(rope, "attention_factor", where),
        short_factors=_factors(rope, "short_factor", dim // 2, where),
        long_factors=_factors(rope, "long_factor", dim // 2, where),
    )


def _factors(rope: Config, key: str, size: int, where: Path) -> tuple[float, ...]:
    values = rope.get(key)
    if not isinstance(values, list) or len(values) != size or not all(type(value) in (int, float) for value in values):
        found = f"{len(values)} values" if isinstance(values, list) else repr(values)
        raise ModelError(
            f"{where}: {key} has {found}, expected {size} numbers",
            hint=FETCH_AGAIN,
        )
    return tuple(float(value) for value in values)
