from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from medusakit.text.call_formats import BY_NAME, FORMATS, CallFormat, Tags
from medusakit.text.call_reader import Argued, Called, CallReader, Part, Said

SCHEMA = {
    "properties": {"a": {"type": "string"}, "b": {"type": "object"}, "n": {"type": ["string", "null"]}},
    "required": ["more"],
}
NAMES = {"f": SCHEMA, "foo": SCHEMA, "now": {}}
TAGGED = [one for one in FORMATS if one.tags]
HERMES, LLAMA, MISTRAL, WITH_ID = (BY_NAME[name] for name in ("hermes", "llama3", "mistral", "mistral-id"))
TRICKY = '{"a": "}\\"{\\\\\\n</tool_call>\\n", "b": {"c": [{}, "[TOOL_CALLS]</tool_call></parameter>"]}}'


def written(form: CallFormat, *calls: tuple[str, str]) -> str:
    given = "Ab3456789" + form.middle if form.id_mark else ""
    spelled = [(name, tagged(form.tags, arguments) if form.tags else arguments) for name, arguments in calls]
    each = [form.named(name) + given + arguments + form.tail for name, arguments in spelled]
    return form.marker + form.opens + (form.between or "").join(each) + form.closes


def tagged(tags: Tags, arguments: str) -> str:
    """As templates write them, but `more`, of which the schema says nothing, is JSON whatever it is."""
    given = json.loads(arguments).items()
    values = [(key, one if isinstance(one, str) and key != "more" else json.dumps(one)) for key, one in given]
    return "".join(tags.named(key) + value + tags.pad + tags.closes + tags.after for key, value in values)


def read(form: CallFormat, *pieces: str) -> tuple[list[Part], bool]:
    reader = CallReader(form, NAMES)
    parts = [part for piece in pieces for part in reader.feed(piece)]
    return parts + reader.end(), reader.complete


def joined(parts: list[Part]) -> tuple[str, list[tuple[str, str]]]:
    """(what is said, calls)"""
    said, calls = "", []
    for part in parts:
        match part:
            case Said(text):
                said += text
            case Called(index, function):
                assert index == len(calls)
                calls.append((function, ""))
            case Argued(index, text):
                assert index == len(calls) - 1
                calls[index] = (calls[index][0], calls[index][1] + text)
    return said, calls


@pytest.mark.parametrize("form", FORMATS, ids=lambda form: form.name)
def test_one_call(form: CallFormat) -> None:
    parts, complete = read(form, written(form, ("foo", TRICKY)))
    assert parts[0] == Called(0, "foo", "Ab3456789" if form.id_mark else None)
    assert joined(parts) == ("", [("foo", TRICKY)])
    assert complete


@pytest.mark.parametrize("form", [one for one in FORMATS if one.between is not None], ids=lambda form: form.name)
def test_text_and_several_calls(form: CallFormat) -> None:
    parts, complete = read(form, "Let me look. \n\n" + written(form, ("f", "{}"), ("foo", TRICKY)))
    assert joined(parts) == ("Let me look.", [("f", "{}"), ("foo", TRICKY)])
    assert complete


@given(st.sampled_from(FORMATS), st.data())
def test_however_the_text_is_cut(form: CallFormat, data: st.DataObject) -> None:
    calls = data.draw(
        st.lists(st.tuples(st.sampled_from(list(NAMES)[:2]), st.sampled_from(["{}", TRICKY])), max_size=3)
    )
    if form.between is None:
        calls = calls[:1]
    said = data.draw(st.text(alphabet='<tol_ca>[TOOL{" \n', max_size=12)) if form.marker or not calls else ""
    if form.start in said:
        return
    text = said + (written(form, *calls) if calls else "")
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=6)))
    pieces = [text[start:end] for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    parts, complete = read(form, *pieces)
    assert joined(parts) == (said.rstrip() if calls else said, calls)
    assert complete == bool(calls)


def test_arguments_come_as_they_are_made() -> None:
    reader = CallReader(HERMES, NAMES)
    assert reader.feed('Hm <tool_call>\n{"name": "f", "argu') == [Said("Hm")]
    assert reader.feed('ments": {"a"') == [Called(0, "f"), Argued(0, '{"a"')]
    assert reader.feed(": 1") == [Argued(0, ": 1")]
    assert reader.feed("}}\n</tool_") == [Argued(0, "}")]
    assert reader.complete
    assert reader.feed("call>") == []


def test_what_only_looked_like_a_call_is_said() -> None:
    reader = CallReader(HERMES, NAMES)
    assert reader.feed("a <tool") == [Said("a")]
    assert reader.feed(" box>") == [Said(" <tool box>")]
    assert CallReader(LLAMA, NAMES).feed('{"na') == []
    assert joined(read(LLAMA, '{"na', 'ive": 1}')[0]) == ('{"naive": 1}', [])
    assert joined(read(LLAMA, 'See {"name": "f", "parameters": {}}')[0]) == ('See {"name": "f", "parameters": {}}', [])


@pytest.mark.parametrize(
    ("form", "text"),
    [
        (HERMES, "<tool_ca"),
        (HERMES, "<tool_call>"),
        (HERMES, '<tool_call>\n{"name": "n'),
        (HERMES, '<tool_call>\n{"name": "other", "arguments": {}}'),
        (LLAMA, '{"name": "fo'),
        (MISTRAL, '[TOOL_CALLS] [{"na'),
        (WITH_ID, "[TOOL_CALLS]foo[CALL_"),
        (WITH_ID, "[TOOL_CALLS]foo[CALL_ID]Ab345"),
        (WITH_ID, "[TOOL_CALLS]foo[CALL_ID]Ab3456789[ARGS"),
    ],
)
def test_an_answer_cut_before_the_name_is_text(form: CallFormat, text: str) -> None:
    for pieces in ([text], list(text)):
        before = ["Well", " "] if form.marker else []
        parts, complete = read(form, *before, *pieces)
        assert joined(parts) == ("".join(before) + text, [])
        assert not complete


def test_an_answer_cut_inside_the_arguments() -> None:
    parts, complete = read(HERMES, '<tool_call>\n{"name": "f", "arguments": {"a": "x')
    assert joined(parts) == ("", [("f", '{"a": "x')])
    assert not complete


QWEN, GLM = BY_NAME["qwen3-coder"], BY_NAME["glm45"]


def test_parameters_come_as_they_are_made() -> None:
    reader = CallReader(QWEN, NAMES)
    assert reader.feed("<tool_call>\n<function=f>\n<param") == [Called(0, "f")]
    assert reader.feed('eter=a>\nA "B" ') == [Argued(0, '{"a": "A \\"B\\" ')]
    assert reader.feed("\n</para") == []
    assert reader.feed("!\n\n</parameter>\n") == [Argued(0, '\\n</para!\\n"')]
    assert reader.feed('<parameter=b>\n{"c": "') == [Argued(0, ', "b": {"c": "')]
    assert reader.feed('</parameter>"') == [Argued(0, '</parameter>"')]
    assert reader.feed("}\n") == [Argued(0, "}")]
    assert reader.feed("</parameter>\n<") == []
    assert not reader.complete
    assert reader.feed("/fun") == [Argued(0, "}")]
    assert reader.complete


@pytest.mark.parametrize("form", TAGGED, ids=lambda form: form.name)
@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        ({"n": None}, {"n": None}),
        ({"n": "null"}, {"n": None}),
        ({"n": "nullify"}, {"n": "nullify"}),
        ({"n": ""}, {"n": ""}),
        ({"a": "null", "n": "nu"}, {"a": "null", "n": "nu"}),
        ({"a": "5", "more": 5}, {"a": "5", "more": 5}),
        ({"a": "\n\n", "more": "</arg_value></parameter>"}, {"a": "\n\n", "more": "</arg_value></parameter>"}),
    ],
    ids=str,
)
def test_values_have_the_types_of_the_schema(form: CallFormat, arguments: dict[str, object], found: object) -> None:
    assert form.tags is not None
    text = (
        form.marker
        + form.opens
        + form.named("foo")
        + tagged(form.tags, json.dumps(arguments))
        + form.tail
        + form.closes
    )
    for pieces in ([text], list(text)):
        parts, complete = read(form, *pieces)
        ((_, told),) = joined(parts)[1]
        assert json.loads(told) == found
        assert complete


def test_a_value_may_lack_the_line_before_its_closing_tag() -> None:
    text = "<tool_call>\n<function=f>\n<parameter=a>\nx</parameter>\n</function>\n</tool_call>"
    for pieces in ([text], list(text)):
        assert joined(read(QWEN, *pieces)[0]) == ("", [("f", '{"a": "x"}')])


@pytest.mark.parametrize("text", ["<tool_call>f", "<tool_call>fo", "<tool_call>\n<function=f"])
def test_tagged_answers_cut_before_the_name(text: str) -> None:
    form = QWEN if "function" in text else GLM
    assert joined(read(form, *text)[0]) == (text, [])


def test_an_answer_cut_between_two_calls() -> None:
    """Whole calls are whole; of a second one that had no name yet nothing is told: after a call there is no text."""
    text = written(HERMES, ("f", "{}"), ("now", "{}"))
    second = text.index('{"name": "now')
    parts, complete = read(HERMES, text[: second - 3])
    assert (joined(parts), complete) == (("", [("f", "{}")]), True)
    parts, complete = read(HERMES, text[: second + 4])
    assert (joined(parts), complete) == (("", [("f", "{}")]), False)
