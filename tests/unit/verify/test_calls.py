"""What grammars of calls permit; that answers are the same however they are drafted is tests/parity/test_calls.py."""

from __future__ import annotations

from typing import Any

import pytest

from grammar_fakes import ARGS_MARK, CALL_MARK, CONTROL_MARK, TEXT_MARK, THINK, IdTokenizer, MarkedTokenizer
from medusakit.errors import FormError
from medusakit.text.call_formats import BY_NAME, FORMATS, CallFormat
from medusakit.text.control import ControlSplitter
from medusakit.text.thoughts import Thought
from medusakit.text.vocabulary import ControlToken
from medusakit.verify.arguments import Function
from medusakit.verify.calls import Calling, UncallableError, call_grammar
from medusakit.verify.grammar import Grammars

pytest.importorskip("llguidance")
HERMES, LLAMA, MISTRAL, WITH_ID = (BY_NAME[name] for name in ("hermes", "llama3", "mistral", "mistral-id"))
CITY = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "unit": {"enum": ["c", "f"]}},
    "required": ["city"],
}
FUNCTIONS = (Function("look", CITY), Function("lookup"))
Said = str | int
THOUGHT_END = 261


class TextTokenizer(MarkedTokenizer):
    """Without control tokens for thoughts."""

    special_ids = MarkedTokenizer.special_ids - {THINK}
    control = ControlSplitter([ControlToken(CONTROL_MARK, "[TOOL_CALLS]")])


class ThoughtTokenizer(MarkedTokenizer):
    vocab_size = 262
    special_ids = MarkedTokenizer.special_ids | {THOUGHT_END}
    spelled = MarkedTokenizer.spelled | {THOUGHT_END: b"</think>"}
    control = ControlSplitter([ControlToken(THINK, "<think>"), ControlToken(THOUGHT_END, "</think>")])


@pytest.fixture(scope="module")
def grammars() -> Grammars:
    return Grammars(MarkedTokenizer(), MarkedTokenizer.vocab_size)  # type: ignore[arg-type]


def ends(grammars: Grammars, calling: Calling, *said: Said) -> bool | None:
    """Whether the answer may end after this; None: it may not be said at all."""
    matcher = call_grammar(grammars, calling).matcher()
    for part in said:
        for token in part.encode() if isinstance(part, str) else [part]:
            if not matcher.try_consume_tokens([token]):
                return None
    return bool(matcher.is_accepting())


@pytest.mark.parametrize(
    ("said", "found"),
    [
        ([""], True),
        (["Hello é <tool", " box> {"], True),
        (["I think ", THINK, "so"], True),
        (["It is [TOOL_CALLS] there"], True),
        (["<tool_call>"], False),
        (["Hm.<tool_call>\n"], False),
        (["Hm.", THINK, TEXT_MARK, '\n{"name": "look'], False),
        (["<tool_call> {"], None),
        (['<tool_call>\n{"name": "other'], None),
        (['<tool_call>\n{"name": "lookup", "arguments": {}}\n</tool_call>'], True),
        (['<tool_call>\n{"name": "lookup", "arguments": {"a"'], None),
        (['<tool_call>\n{"name": "look", "arguments": {}'], None),
        (['<tool_call>\n{"name": "look", "arguments": {"city": "</tool_call>", "unit": "c"}}\n</tool_call>'], True),
        (['<tool_call>\n{"name": "look", "arguments": {"city": "x", "other"'], None),
        (['<tool_call>\n{"name": "lookup", "arguments": {}}\n</tool_call>\n', TEXT_MARK, "\n{"], False),
        (['<tool_call>\n{"name": "lookup", "arguments": {}}\n</tool_call> Done.'], None),
    ],
    ids=str,
)
def test_free_text_and_calls(grammars: Grammars, said: list[Said], found: bool | None) -> None:
    assert ends(grammars, Calling(HERMES, FUNCTIONS), *said) is found


@pytest.mark.parametrize(
    ("said", "found"),
    [
        (["Hm ", CONTROL_MARK, '[{"name": "lookup", "arguments": {}}]'], True),
        ([CONTROL_MARK, ' [{"name": "lookup", "arguments": {}}, {"name": "look', '"'], False),
        ([CONTROL_MARK, "  ["], None),
        ([CONTROL_MARK, "x"], None),
        (["[TOOL_CALLS"], True),
        (["[TOOL_CALLS]"], None),
        ([TEXT_MARK], True),
    ],
    ids=str,
)
def test_a_mark_that_is_a_control_token(grammars: Grammars, said: list[Said], found: bool | None) -> None:
    assert ends(grammars, Calling(MISTRAL, FUNCTIONS), *said) is found
    assert call_grammar(grammars, Calling(MISTRAL, FUNCTIONS)).shown == {CONTROL_MARK}


@pytest.mark.parametrize(
    ("said", "found"),
    [
        (["lookup", CALL_MARK, "Ab3456789", ARGS_MARK, "{}"], True),
        (["lookup", CALL_MARK, "Ab3456789", ARGS_MARK, "{}", CONTROL_MARK, "look", CALL_MARK, "a"], False),
        (["lookup", ARGS_MARK], None),
        (["lookup", CALL_MARK, "Ab345678", ARGS_MARK], None),
        (["lookup", CALL_MARK, "Ab34567890"], None),
        (["lookup", CALL_MARK, "Ab-"], None),
        (["lookup[CALL_ID]"], None),
    ],
    ids=str,
)
def test_a_call_with_an_id(said: list[Said], found: bool | None) -> None:
    grammars = Grammars(IdTokenizer(), IdTokenizer.vocab_size)  # type: ignore[arg-type]
    assert ends(grammars, Calling(WITH_ID, FUNCTIONS), "Hm", CONTROL_MARK, *said) is found
    shown = call_grammar(grammars, Calling(WITH_ID, FUNCTIONS)).shown
    assert shown == {CONTROL_MARK, CALL_MARK, ARGS_MARK}


def test_a_format_without_a_mark(grammars: Grammars) -> None:
    calling = Calling(LLAMA, FUNCTIONS)
    assert ends(grammars, calling, '{"nam', 'e": 1}')
    assert ends(grammars, calling, '{"name": "lookup", "parameters": {}}')
    assert ends(grammars, calling, '{"name": "x') is None
    assert ends(grammars, calling, 'Say {"name": "x')


@pytest.mark.parametrize("form", FORMATS, ids=lambda form: form.name)
def test_a_call_that_must_be(grammars: Grammars, form: CallFormat) -> None:
    calling = Calling(form, FUNCTIONS, free=False)
    assert ends(grammars, calling, "") is False
    assert ends(grammars, calling, "I ") is None
    matcher = call_grammar(grammars, calling).matcher()
    forced = matcher.compute_ff_tokens()
    assert forced[0] in ([CONTROL_MARK] if form.marker == "[TOOL_CALLS]" else [ord("<"), ord("{"), TEXT_MARK])


CALL = '<tool_call>\n{"name": "lookup", "arguments": {}}\n</tool_call>'
THOUGHT, OPENED = Thought("<think>", "</think>"), Thought("", "</think>")


@pytest.mark.parametrize(
    ("thought", "said", "found"),
    [
        (THOUGHT, [CALL], True),
        (THOUGHT, ["<think>\nHm <tool\n</think>\n\n" + CALL], True),
        (THOUGHT, ["<think></think>" + CALL], True),
        (THOUGHT, ["<think>Hm"], False),
        (THOUGHT, ["<think>Hm</think>\n"], False),
        (THOUGHT, ["<think>Hm</think>So"], None),
        (THOUGHT, ["<think>Hm <tool_call>"], None),
        (THOUGHT, ["<think>Hm", TEXT_MARK], None),
        (THOUGHT, ["<think></think><think>"], None),
        (THOUGHT, ["Hm"], None),
        (OPENED, ["Hm</think>" + CALL], True),
        (OPENED, ["Hm"], False),
        (OPENED, [CALL], None),
        (None, ["<think>"], None),
    ],
    ids=str,
)
def test_a_call_that_must_be_may_be_thought_of(thought: Thought | None, said: list[Said], found: bool | None) -> None:
    plain = Grammars(TextTokenizer(), TextTokenizer.vocab_size)  # type: ignore[arg-type]
    assert ends(plain, Calling(HERMES, FUNCTIONS, free=False, thought=thought), *said) is found


@pytest.mark.parametrize(
    ("said", "found"),
    [
        ([THINK, "Hm", THOUGHT_END, CALL], True),
        ([THINK, THOUGHT_END, "\n", CALL], True),
        ([THINK, "Hm</think>"], None),
        ([THINK, "Hm", THINK], None),
        (["<think>"], None),
    ],
    ids=str,
)
def test_thoughts_between_control_tokens(said: list[Said], found: bool | None) -> None:
    grammars = Grammars(ThoughtTokenizer(), ThoughtTokenizer.vocab_size)  # type: ignore[arg-type]
    calling = Calling(HERMES, FUNCTIONS, free=False, thought=THOUGHT)
    assert ends(grammars, calling, *said) is found
    assert not call_grammar(grammars, calling).shown


@pytest.mark.parametrize("form", [one for one in FORMATS if one.between], ids=lambda form: form.name)
@pytest.mark.parametrize("several", [True, False])
def test_one_call_only(grammars: Grammars, form: CallFormat, several: bool) -> None:
    calling = Calling(form, FUNCTIONS, free=False, several=several)
    one = (
        form.named("lookup")
        + ("Ab3456789" + form.middle if form.id_mark else "")
        + ("" if form.tags else "{}")
        + form.tail
    )
    said = form.marker + form.opens + one + (form.between or "") + one + form.closes
    tokens: list[Said] = []
    for part in said.split("[TOOL_CALLS]"):
        tokens += [CONTROL_MARK, part]
    assert ends(grammars, calling, *tokens[1:]) is (True if several else None)


def test_an_answer_without_a_call_may_have_a_form(grammars: Grammars) -> None:
    calling = Calling(HERMES, FUNCTIONS, document={"const": {"a": 1}})
    assert ends(grammars, calling, '{"a": 1}')
    assert ends(grammars, calling, "Hello") is None
    assert ends(grammars, calling, '<tool_call>\n{"name": "lookup", "arguments": {}}\n</tool_call>')


def test_the_function_that_cannot_be_called_is_named(grammars: Grammars) -> None:
    bad = Function("bad", {"type": "object", "properties": {"x": {"$ref": "#/nowhere"}}})
    with pytest.raises(UncallableError, match="nowhere") as refusal:
        call_grammar(grammars, Calling(HERMES, (*FUNCTIONS, bad)))
    assert refusal.value.place == 2


def test_functions_that_are_too_much_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("medusakit.verify.grammar.objection", lambda trial: "too large" if "args_1" in trial else "")
    fresh = Grammars(MarkedTokenizer(), MarkedTokenizer.vocab_size)  # type: ignore[arg-type]
    with pytest.raises(FormError, match="functions together cannot be followed: too large") as refusal:
        call_grammar(fresh, Calling(HERMES, FUNCTIONS))
    assert not isinstance(refusal.value, UncallableError)


def test_looking_for_the_function_ends_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[str] = []
    monkeypatch.setattr("medusakit.verify.grammar.objection", lambda trial: tried.append(trial) or "too large")
    monkeypatch.setattr("medusakit.verify.calls.BLAME_S", -1.0)
    fresh = Grammars(MarkedTokenizer(), MarkedTokenizer.vocab_size)  # type: ignore[arg-type]
    with pytest.raises(FormError, match="functions together"):
        call_grammar(fresh, Calling(HERMES, FUNCTIONS))
    assert len(tried) == 1


@pytest.mark.parametrize("required", [["a", "b"], [["a"]], 5])
def test_a_property_may_be_required_that_is_not_named(grammars: Grammars, required: Any) -> None:
    schema = {"type": "object", "properties": {"a": {"const": 1}}, "required": required}
    calling = Calling(HERMES, (Function("f", schema),))
    if required != ["a", "b"]:
        with pytest.raises(UncallableError):
            call_grammar(grammars, calling)
    else:
        assert ends(grammars, calling, '<tool_call>\n{"name": "f", "arguments": {"a": 1, "b": [2]}}\n</tool_call>')


@pytest.mark.parametrize("strict", [True, False])
def test_what_is_not_known_is_refused_or_left_out(grammars: Grammars, strict: bool) -> None:
    schema: dict[str, Any] = {"type": "object", "properties": {"x": {"type": "array", "uniqueItems": True}}}
    calling = Calling(HERMES, (Function("f", schema, strict),))
    if strict:
        with pytest.raises(UncallableError, match="uniqueItems"):
            call_grammar(grammars, calling)
    else:
        assert ends(grammars, calling, '<tool_call>\n{"name": "f", "arguments": {"x": [1, 1]}}\n</tool_call>')


def test_properties_that_stand_elsewhere_stay_possible(grammars: Grammars) -> None:
    schema = {"properties": {"a": {"const": 1}}, "allOf": [{"properties": {"b": {"const": 2}}, "required": ["b"]}]}
    calling = Calling(HERMES, (Function("f", {"type": "object"} | schema),))
    assert ends(grammars, calling, '<tool_call>\n{"name": "f", "arguments": {"a": 1, "b": 2}}\n</tool_call>')
