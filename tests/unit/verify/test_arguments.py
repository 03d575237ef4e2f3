"""Parameters between tags: what a grammar permits is what is read back, and holds to the schema."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from grammar_fakes import MarkedTokenizer, TagTokenizer
from medusakit.errors import FormError
from medusakit.text.call_arguments import TaggedArguments
from medusakit.text.call_formats import BY_NAME, CallFormat
from medusakit.text.call_reader import Argued, CallReader
from medusakit.verify.arguments import Function, argument_rules
from medusakit.verify.calls import Calling, UncallableError, call_grammar
from medusakit.verify.grammar import Grammars

pytest.importorskip("llguidance")
jsonschema = pytest.importorskip("jsonschema")
CODER, GLM = BY_NAME["qwen3-coder"], BY_NAME["glm45"]
NOTE: dict[str, Any] = {
    "type": "object",
    "$defs": {"Colour": {"enum": ["red", "bright red", 'é"\\n']}},
    "properties": {
        "text": {"type": "string"},
        "colour": {"$ref": "#/$defs/Colour"},
        "short": {"anyOf": [{"type": "string", "minLength": 5, "maxLength": 8}, {"type": "null"}]},
        "count": {"type": "integer", "minimum": 0},
        "any": {"type": ["string", "boolean"]},
        "tags": {"type": "array", "items": {"$ref": "#/$defs/Colour"}},
        "when": {"type": "object", "properties": {"at": {"type": "string"}}, "required": ["at"]},
    },
    "required": ["text", "count"],
}


@pytest.fixture(scope="module")
def grammars() -> Grammars:
    return Grammars(MarkedTokenizer(), MarkedTokenizer.vocab_size)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def tagged() -> Grammars:
    return Grammars(TagTokenizer(), TagTokenizer.vocab_size)  # type: ignore[arg-type]


def calling(form: CallFormat, schema: dict[str, Any], strict: bool = False) -> Calling:
    return Calling(form, (Function("note", schema, strict),), free=False)


def called(form: CallFormat, *parameters: tuple[str, str]) -> str:
    tags = form.tags
    assert tags is not None
    given = "".join(tags.named(key) + value + tags.pad + tags.closes + tags.after for key, value in parameters)
    return form.marker + form.opens + form.named("note") + given + form.tail + form.closes


def permits(grammars: Grammars, calling: Calling, text: str, *, control: bool = False) -> bool:
    """Whether this is a whole answer. control: what spells a control token in it is one."""
    matcher = call_grammar(grammars, calling).matcher()
    parts = grammars.tokenizer.control.split(text) if control else [text]
    tokens = [token for part in parts for token in ([part] if isinstance(part, int) else part.encode())]
    return all(matcher.try_consume_tokens([token]) for token in tokens) and matcher.is_accepting()


def read(calling: Calling, text: str) -> str:
    reader = CallReader(calling.form, {one.name: one.parameters for one in calling.functions})
    parts = [*reader.feed(text), *reader.end()]
    assert reader.complete
    return "".join(part.text for part in parts if isinstance(part, Argued))


TEXT, COUNT = ("text", "a </b>\n"), ("count", "12")
LINES = [
    ([TEXT, COUNT], True),
    ([TEXT], False),
    ([COUNT, TEXT], False),
    ([TEXT, COUNT, COUNT], False),
    ([TEXT, ("count", "-1")], False),
    ([TEXT, ("count", "1.5")], False),
    ([TEXT, ("count", "")], False),
    ([("text", ""), COUNT], True),
    ([TEXT, ("colour", "bright red"), COUNT], True),
    ([TEXT, ("colour", 'é"\\n'), COUNT], True),
    ([TEXT, ("colour", "bright"), COUNT], False),
    ([TEXT, ("short", "12345678"), COUNT], True),
    ([TEXT, ("short", "1234"), COUNT], False),
    ([TEXT, ("short", "123456789"), COUNT], False),
    ([TEXT, ("short", "null"), COUNT], True),
    ([TEXT, COUNT, ("any", '"</parameter></arg_value>"')], True),
    ([TEXT, COUNT, ("any", "true")], True),
    ([TEXT, COUNT, ("any", "yes")], False),
    ([TEXT, COUNT, ("tags", '["red", "bright red"]'), ("when", '{"at": "5"}')], True),
    ([TEXT, COUNT, ("tags", '["blue"]')], False),
    ([TEXT, COUNT, ("when", "{}")], False),
    ([TEXT, COUNT, ("other", "1")], False),
]


@pytest.mark.parametrize("form", [CODER, GLM, BY_NAME["glm47"]], ids=lambda form: form.name)
@pytest.mark.parametrize(("parameters", "found"), LINES, ids=str)
def test_what_is_permitted_follows_the_schema(
    grammars: Grammars, form: CallFormat, parameters: list[tuple[str, str]], found: bool
) -> None:
    wished = calling(form, NOTE)
    text = called(form, *parameters)
    assert permits(grammars, wished, text) == found
    if found:
        arguments = json.loads(read(wished, text))
        assert list(arguments) == [key for key, _ in parameters]
        jsonschema.validate(arguments, NOTE)
        assert arguments["text"] == parameters[0][1]


@pytest.mark.parametrize(("parameters", "found"), LINES, ids=str)
def test_tags_may_be_control_tokens(tagged: Grammars, parameters: list[tuple[str, str]], found: bool) -> None:
    if any("</arg_value>" in value for _, value in parameters):
        return  # a control token is none of a value's characters
    wished = calling(GLM, NOTE)
    assert permits(tagged, wished, called(GLM, *parameters), control=True) == found
    assert call_grammar(tagged, wished).shown == TagTokenizer.tags.keys()


def test_a_closing_tag_that_is_spelled_is_no_text(tagged: Grammars) -> None:
    matcher = call_grammar(tagged, calling(GLM, {"properties": {"text": {"type": "string"}}})).matcher()
    tokens = [261, *b"note\n", 263, *b"text", 264, *b"\n", 265, *b"a</arg_value"]
    assert matcher.consume_tokens(tokens)
    assert not matcher.try_consume_tokens(list(b">"))
    assert matcher.try_consume_tokens([266])


@given(text=st.text(max_size=20), maybe=st.none() | st.text(min_size=5, max_size=8), count=st.integers(0, 10**20))
@pytest.mark.parametrize("form", [CODER, GLM], ids=lambda form: form.name)
def test_every_text_without_the_closing_tag_can_be_said(
    grammars: Grammars, form: CallFormat, text: str, maybe: str | None, count: int
) -> None:
    assert form.tags is not None
    assume(form.tags.closes not in text and form.tags.closes not in (maybe or ""))
    parameters = [("text", text), ("short", "null" if maybe is None else maybe), ("count", str(count))]
    said = called(form, *parameters)
    wished = calling(form, NOTE)
    assert permits(grammars, wished, said)
    assert json.loads(read(wished, said)) == {"text": text, "short": maybe, "count": count}


def test_a_line_before_a_closing_tag_may_be_missing(grammars: Grammars) -> None:
    wished = calling(CODER, {"properties": {"text": {"type": "string"}}})
    said = called(CODER, ("text", "x")).replace("x\n<", "x<")
    assert permits(grammars, wished, said)
    assert read(wished, said) == '{"text": "x"}'
    limited = calling(CODER, {"properties": {"text": {"type": "string", "maxLength": 5}}})
    assert not permits(grammars, limited, said)


def test_values_that_are_named_have_the_length_that_is_asked_for(grammars: Grammars) -> None:
    wished = calling(CODER, {"properties": {"x": {"enum": ["a", "bcd", "bcde"], "minLength": 2, "maxLength": 3}}})
    permitted = [text for text in ("a", "bcd", "bcde") if permits(grammars, wished, called(CODER, ("x", text)))]
    assert permitted == ["bcd"]


def test_what_is_required_without_a_schema_is_json(grammars: Grammars) -> None:
    wished = calling(CODER, {"properties": {}, "required": ["x"]})
    assert permits(grammars, wished, called(CODER, ("x", "[1]")))
    assert not permits(grammars, wished, called(CODER))


@pytest.mark.parametrize("schema", [{}, {"type": "object"}, {"properties": {}, "additionalProperties": True}], ids=str)
def test_no_parameters(grammars: Grammars, schema: dict[str, Any]) -> None:
    assert permits(grammars, calling(CODER, schema), called(CODER))
    assert not permits(grammars, calling(CODER, schema), called(CODER, ("x", "1")))


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ({"properties": []}, "properties is not an object"),
        ({"properties": {}, "required": "x"}, "required is not a list"),
        ({"properties": {}, "required": [["x"]]}, "required is not a list"),
        ({"$ref": "#/$defs/x", "$defs": {"x": {}}}, "properties has to name them"),
        ({"properties": {"x": 5}}, "'5' is no schema"),
        ({"properties": {"x": False}}, "'False' is no schema"),
        ({"properties": {"x": {"type": "no"}}}, "no"),
        ({"properties": {"x": {"type": "string", "maxLength": -1}}}, "maxLength is -1"),
        ({"properties": {"x": {"type": "string", "minLength": 5, "maxLength": 1}}}, "more than maxLength"),
        ({"properties": {"x": {"enum": ["a</parameter>"]}}}, "what ends values"),
        ({"properties": {"x": {"enum": ["a", "bc"], "minLength": 3}}}, "no value of the parameter 'x'"),
        ({"properties": {"x>\ny": {}}}, "what ends names"),
        ({"properties": {"x": {"$ref": "#/$defs/no"}}}, "no"),
    ],
    ids=str,
)
def test_schemas_that_cannot_be_followed(grammars: Grammars, schema: dict[str, Any], reason: str) -> None:
    with pytest.raises(UncallableError, match=reason) as refusal:
        call_grammar(grammars, Calling(CODER, (Function("fine"), Function("note", schema))))
    assert refusal.value.place == 1


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {"x": {"type": "string", "pattern": "^a"}}},
        {"properties": {"x": {"type": "array", "uniqueItems": True}}},
        {"properties": {"x": {}}, "anyOf": [{"required": ["x"]}]},
        {"properties": {"x": {}}, "additionalProperties": {"type": "string"}},
    ],
    ids=str,
)
def test_what_is_not_known_is_refused_or_left_out(grammars: Grammars, schema: dict[str, Any]) -> None:
    with pytest.raises(UncallableError):
        call_grammar(grammars, calling(CODER, schema, strict=True))
    call_grammar(grammars, calling(CODER, schema))


def test_definitions_that_are_repeated_too_often(grammars: Grammars) -> None:
    many = {f"p{place}": {"type": "array", "items": {"$ref": "#/$defs/d"}} for place in range(200)}
    schema = {"$defs": {"d": {"description": "x" * 20_000}}, "properties": many}
    with pytest.raises(UncallableError, match="too large for so many parameters"):
        call_grammar(grammars, calling(CODER, schema))


REFERENCES = ["#", "#/$defs/a", "#/$defs/b", "#/properties/x"]
WORDS = st.sampled_from(["string", "null", "integer", "x", "</parameter>", *REFERENCES])
VALUES = st.none() | st.integers(-1, 9) | WORDS
SCHEMAS = st.recursive(
    VALUES | st.just({"type": "string"}) | st.builds(lambda one: {"$ref": one}, st.sampled_from(REFERENCES)),
    lambda inner: st.fixed_dictionaries(
        {},
        optional={
            "type": WORDS | st.lists(WORDS, max_size=2),
            **dict.fromkeys(["const", "minLength", "maxLength"], VALUES),
            **dict.fromkeys(["enum", "anyOf", "allOf", "oneOf"], st.lists(inner, max_size=3) | inner),
        },
    ),
    max_leaves=6,
)
NAMED = st.dictionaries(st.sampled_from(["a", "b", "x"]), SCHEMAS, max_size=3)
REQUIRED = st.lists(st.sampled_from(["a", "x", "y"]), max_size=2)
FUNCTIONS = st.fixed_dictionaries({"properties": NAMED, "$defs": NAMED}, optional={"required": REQUIRED | VALUES})


@given(FUNCTIONS, st.booleans())
def test_a_schema_is_followed_or_refused_whatever_it_is(schema: dict[str, Any], strict: bool) -> None:
    assert CODER.tags is not None
    try:
        rules = argument_rules("start", Function("note", schema, strict), CODER.tags)
    except FormError:
        return
    assert next(iter(rules)) == "start"
    reader = TaggedArguments(CODER.tags, schema)
    assert reader.take("</f") == ("{}", "</f")
