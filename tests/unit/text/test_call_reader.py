from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from medusakit.text.call_formats import BY_NAME, FORMATS, CallFormat
from medusakit.text.call_reader import Argued, Called, CallReader, Part, Said

NAMES = ("f", "foo", "now")
HERMES, LLAMA, MISTRAL, WITH_ID = (BY_NAME[name] for name in ("hermes", "llama3", "mistral", "mistral-id"))
TRICKY = '{"a": "}\\"{\\\\", "b": {"c": [{}, "[TOOL_CALLS]</tool_call>"]}}'


def written(form: CallFormat, *calls: tuple[str, str]) -> str:
    given = "Ab3456789" + form.middle if form.id_mark else ""
    each = [form.named(name) + given + arguments + form.tail for name, arguments in calls]
    return form.marker + form.opens + (form.between or "").join(each) + form.closes


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
    assert parts == [Called(0, "foo", "Ab3456789" if form.id_mark else None), Argued(0, TRICKY)]
    assert complete


@pytest.mark.parametrize("form", [one for one in FORMATS if one.between is not None], ids=lambda form: form.name)
def test_text_and_several_calls(form: CallFormat) -> None:
    parts, complete = read(form, "Let me look. \n\n" + written(form, ("f", "{}"), ("now", TRICKY)))
    assert joined(parts) == ("Let me look.", [("f", "{}"), ("now", TRICKY)])
    assert complete


@given(st.sampled_from(FORMATS), st.data())
def test_however_the_text_is_cut(form: CallFormat, data: st.DataObject) -> None:
    calls = data.draw(st.lists(st.tuples(st.sampled_from(NAMES), st.sampled_from(["{}", TRICKY])), max_size=3))
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


def test_an_answer_cut_between_two_calls() -> None:
    """Whole calls are whole; of a second one that had no name yet nothing is told: after a call there is no text."""
    text = written(HERMES, ("f", "{}"), ("now", "{}"))
    second = text.index('{"name": "now')
    parts, complete = read(HERMES, text[: second - 3])
    assert (joined(parts), complete) == (("", [("f", "{}")]), True)
    parts, complete = read(HERMES, text[: second + 4])
    assert (joined(parts), complete) == (("", [("f", "{}")]), False)
