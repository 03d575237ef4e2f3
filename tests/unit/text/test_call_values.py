from __future__ import annotations

from typing import Any

import pytest

from medusakit.text.call_values import MAX_REFERENCES, Written, alternatives, parameters_of, strings_of, written_as

COLOUR = {"enum": ["red", "green"]}
ROOT: dict[str, Any] = {
    "$defs": {
        "Colour": COLOUR,
        "a/b": {"type": "string"},
        "Self": {"$ref": "#/$defs/Self"},
        "Both": {"anyOf": [{"$ref": "#/$defs/Colour"}, {"$ref": "#/$defs/Both"}, {"type": "null"}]},
    }
}


@pytest.mark.parametrize(
    ("schema", "found"),
    [
        ({"type": "string", "format": "date"}, Written.TEXT),
        (COLOUR, Written.TEXT),
        ({"const": "x"}, Written.TEXT),
        ({"$ref": "#/$defs/Colour", "description": "of the wall"}, Written.TEXT),
        ({"allOf": [{"$ref": "#/$defs/Colour"}], "default": "red"}, Written.TEXT),
        ({"$ref": "#/$defs/a~1b"}, Written.TEXT),
        ({"oneOf": [{"const": "a"}, {"const": "b"}]}, Written.TEXT),
        ({"anyOf": [{"type": "string"}, {"type": "null"}], "title": "x"}, Written.TEXT_OR_NULL),
        ({"type": ["string", "null"]}, Written.TEXT_OR_NULL),
        ({"enum": ["a", None]}, Written.TEXT_OR_NULL),
        ({"type": "string", "enum": ["a", None]}, Written.TEXT),
        ({"$ref": "#/$defs/Both"}, Written.TEXT_OR_NULL),
        ({"type": "integer"}, Written.JSON),
        ({"type": "null"}, Written.JSON),
        ({"type": ["string", "integer"]}, Written.JSON),
        ({"enum": ["a", 1]}, Written.JSON),
        ({"anyOf": [{"type": "string"}, {"type": "array"}]}, Written.JSON),
        ({"anyOf": [{"type": "string"}, {}]}, Written.JSON),
        ({"allOf": [{"type": "string"}, {"maxLength": 3}]}, Written.JSON),
        ({}, Written.JSON),
        (True, Written.JSON),
        ({"$ref": "#/nowhere"}, Written.JSON),
        ({"$ref": "#"}, Written.JSON),
        ({"$ref": "#/$defs/Self"}, Written.JSON),
        ({"type": [["string"]]}, Written.JSON),
        ({"type": "string", "enum": "ab"}, Written.JSON),
        ({"type": [], "const": "x"}, Written.JSON),
        ({"enum": ["a", 1], "const": "a"}, Written.TEXT),
        ({"anyOf": "ab"}, Written.JSON),
        ({"allOf": 5}, Written.JSON),
    ],
    ids=str,
)
def test_how_a_value_is_written(schema: Any, found: Written) -> None:
    assert written_as(schema, ROOT) is found


def test_a_choice_comes_apart_in_its_order() -> None:
    schema = {
        "anyOf": [{"type": "null"}, {"oneOf": [{"$ref": "#/$defs/Colour"}, {"const": "x"}]}, {"$ref": "#/$defs/Colour"}]
    }
    found = alternatives(schema, ROOT)
    assert found == [{"type": "null"}, COLOUR, {"const": "x"}]
    assert [strings_of(one) for one in found] == [None, ["red", "green"], ["x"]]


@pytest.mark.parametrize(("length", "found"), [(MAX_REFERENCES, Written.TEXT), (MAX_REFERENCES + 1, Written.JSON)])
def test_references_that_follow_each_other(length: int, found: Written) -> None:
    chain = {f"d{place}": {"$ref": f"#/$defs/d{place + 1}"} for place in range(1, length)}
    root = {"$defs": chain | {f"d{length}": {"type": "string"}}}
    assert written_as({"$ref": "#/$defs/d1"}, root) is found


def test_parameters_that_are_only_required_come_last() -> None:
    assert list(parameters_of({"properties": {"b": {}, "a": {}}, "required": ["c", "a"]})) == ["b", "a", "c"]
    assert parameters_of({}) == {}
