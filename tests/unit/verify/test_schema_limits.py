"""Schemas that are too much: each is refused with its reason, or made into a grammar, within a bounded time."""

from __future__ import annotations

import string
import time
from typing import Any

import pytest

from fakes import ByteTokenizer
from medusakit.errors import FormError, RuntimeFailure
from medusakit.verify import compiling
from medusakit.verify.compiling import CPU_S, WALL_S, objection
from medusakit.verify.grammar import MAX_KEPT, MAX_NESTING, MAX_SCHEMA_BYTES, Grammars

pytest.importorskip("llguidance")
Schema = dict[str, Any]


class Bytes(ByteTokenizer):
    space_prefix = False


@pytest.fixture(scope="module")
def grammars() -> Grammars:
    return Grammars(Bytes(), 258)  # type: ignore[arg-type]


def text(pattern: str) -> Schema:
    return {"type": "string", "pattern": pattern}


def nested(depth: int) -> Schema:
    found: Schema = {"type": "integer"}
    for _ in range(depth):
        found = {"type": "array", "items": found}
    return found


def crossed(count: int) -> Schema:
    """Alternatives that multiply."""
    return {"allOf": [{"anyOf": [{"properties": {f"p{i}": {"const": j}}} for j in range(3)]} for i in range(count)]}


KEYS = {f"k{i}": {"type": "integer"} for i in range(1000)}
REFUSED = {
    "nested deeply": (nested(3000), "nested more than"),
    "long": ({"enum": ["x" * MAX_SCHEMA_BYTES]}, "bytes long"),
    "itself alone": ({"$ref": "#"}, "no document"),
    "a circle of references": (
        {"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"},
        "no document",
    ),
    "patterns that must all hold": (
        {"allOf": [text(f".*{letter}.*") for letter in string.ascii_lowercase]},
        f"more than {CPU_S} s of a processor|not done within",
    ),
    "repeats of repeats of repeats": (text("^((a{100}){100}){100}$"), "too many|too much"),
    "alternatives that multiply": (crossed(12), "too large"),
    "a thousand optional keys": ({"type": "object", "properties": KEYS, "additionalProperties": False}, "items; max"),
    "multiples of a large prime": ({"type": "integer", "multipleOf": 999999937}, "fuel"),
    "no JSON schema": ({"type": "nothing"}, "Invalid type"),
}  # fmt: skip
TAKEN = {
    "a repeat after a repeat": text("^(a|b)*c{1000}$"),
    "an automaton that would double": text("^(a|b)*a(a|b){200}$"),
    "a huge enum": {"enum": [f"value {i}" for i in range(4000)]},
    "long texts": {"const": "x y" * 20000},
    "forced for long": text("^a{50000}$"),
    "a million items": {"type": "array", "items": {"type": "integer"}, "minItems": 1_000_000},
    "nested": nested(MAX_NESTING - 5),
    "a tree of itself": {
        "type": "object", "properties": {"l": {"$ref": "#"}, "r": {"$ref": "#"}}, "additionalProperties": False,
    },
    "references that double": {
        "$defs": {"d0": {"type": "integer"}} | {
            f"d{i}": {"type": "array", "prefixItems": [{"$ref": f"#/$defs/d{i - 1}"}] * 2, "minItems": 2, "maxItems": 2}
            for i in range(1, 60)
        },
        "$ref": "#/$defs/d59",
    },
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_too_much_is_refused_with_its_reason(grammars: Grammars, name: str) -> None:
    schema, reason = REFUSED[name]
    started = time.monotonic()
    with pytest.raises(FormError, match=reason) as refusal:
        grammars.json_schema(schema)
    assert time.monotonic() - started < WALL_S + 30
    assert "cannot be followed" in refusal.value.message and "<state>" not in refusal.value.message


@pytest.mark.parametrize("name", TAKEN)
def test_what_only_looks_dangerous_is_followed(grammars: Grammars, name: str) -> None:
    matcher = grammars.json_schema(TAKEN[name]).matcher()
    for _ in range(50):
        if matcher.is_stopped():
            break
        mask = matcher.compute_bitmask()
        allowed = next(token for token in range(256) if mask[token // 8] >> token % 8 & 1)
        assert matcher.consume_tokens([allowed]), matcher.get_error()
    assert not matcher.is_error(), matcher.get_error()


def test_a_trial_ends_by_the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiling, "WALL_S", 0.001)
    assert "not done within 0.001 s" in objection("{}")


def test_a_trial_that_cannot_be_made_is_not_the_schema_s_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiling.sys, "executable", "/nowhere/python")
    with pytest.raises(RuntimeFailure, match="no process to try"):
        objection("{}")


def test_a_grammar_is_made_once_and_few_are_kept(grammars: Grammars, monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[str] = []
    monkeypatch.setattr("medusakit.verify.grammar.objection", lambda schema: tried.append(schema) or "")
    first = grammars.json_schema({"const": "a"})
    assert grammars.json_schema({"const": "a"}) is first
    for count in range(MAX_KEPT):
        grammars.json_schema({"const": count})
    assert grammars.json_schema({"const": "a"}) is not first
    assert tried.count('{"const": "a"}') == 2
