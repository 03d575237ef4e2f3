"""Answers that call functions: whatever drafts, the answer is that of plain decoding, and its calls can be made."""

from __future__ import annotations

import json
import re

import pytest

from grammar_fakes import CONTROL_MARK, TEXT_MARK, THINK, IdTokenizer, answers, drafting
from medusakit.drafters.registry import HEADLESS
from medusakit.engine.events import GenerationResult
from medusakit.settings import SamplingParams
from medusakit.text.call_formats import BY_NAME, FORMATS, CallFormat
from medusakit.text.call_reader import Argued, Called, CallReader
from medusakit.text.thoughts import Thought
from medusakit.verify.arguments import Function
from medusakit.verify.calls import Calling, call_grammar
from medusakit.verify.grammar import Grammars

TOKENIZER = IdTokenizer()
PAINT = {"type": "object", "properties": {"colour": {"enum": ["red", "green"]}, "times": {"type": "integer",
         "minimum": 1, "maximum": 99}, "note": {"type": "string", "maxLength": 5}},
         "required": ["colour", "times"]}  # fmt: skip
FUNCTIONS = (Function("paint", PAINT), Function("pause"))
BEGINS = {"<tool_call>": TEXT_MARK, "[TOOL_CALLS]": CONTROL_MARK, "": ord("{")}
CHANGES = {
    "greedy": {},
    "sampled": {"temperature": 1.0, "seed": 3},
    "filtered": {"temperature": 0.7, "seed": 4, "top_k": 40, "logprobs": 2},
}


@pytest.fixture(scope="module")
def grammars() -> Grammars:
    pytest.importorskip("llguidance")
    return Grammars(TOKENIZER, TOKENIZER.vocab_size)


def calls(form: CallFormat, found: GenerationResult) -> list[tuple[str, str]]:
    reader, read = CallReader(form, {one.name: one.parameters for one in FUNCTIONS}), []
    for part in [*reader.feed(found.text), *reader.end()]:
        if isinstance(part, Called):
            assert re.fullmatch("[a-zA-Z0-9]{9}", part.id or "") or not form.id_mark
            read.append((part.function, ""))
        elif isinstance(part, Argued):
            read[-1] = (read[-1][0], read[-1][1] + part.text)
    assert reader.complete == (found.finish_reason == "stop" and bool(read))
    return read


def check(made: list[tuple[str, str]]) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    for name, arguments in made:
        jsonschema.validate(json.loads(arguments), PAINT if name == "paint" else {"maxProperties": 0})


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("form", FORMATS, ids=lambda form: form.name)
@pytest.mark.parametrize("name", [*HEADLESS, "hybrid", "noise"])
def test_a_call_that_must_be(grammars: Grammars, name: str, form: CallFormat, change: str) -> None:
    grammar = call_grammar(grammars, Calling(form, FUNCTIONS, free=False, several=False))
    params = SamplingParams(max_tokens=150, grammar=grammar, **CHANGES[change])  # type: ignore[arg-type]
    (plain,) = answers(params, tokenizer=TOKENIZER)
    assert plain.finish_reason == "stop"
    made = calls(form, plain)
    assert len(made) == 1
    check(made)
    for found in answers(params, *drafting(name, TOKENIZER.vocab_size), times=2, tokenizer=TOKENIZER):
        assert (found.token_ids, found.text) == (plain.token_ids, plain.text)


@pytest.mark.parametrize("form", [BY_NAME["hermes"], BY_NAME["glm45"]], ids=lambda form: form.name)
@pytest.mark.parametrize("name", ["hybrid", "noise"])
def test_a_call_that_is_thought_of(grammars: Grammars, name: str, form: CallFormat) -> None:
    """The model is made to think, and to end it."""
    thought = Thought("<think>", "~")
    grammar = call_grammar(grammars, Calling(form, FUNCTIONS, free=False, several=False, thought=thought))
    bias = {THINK: 100.0, ord("~"): 3.0}
    for seed in range(3):
        params = SamplingParams(max_tokens=190, temperature=1.0, seed=seed, grammar=grammar, logit_bias=bias)
        (plain,) = answers(params, tokenizer=TOKENIZER)
        assert plain.token_ids[0] == THINK and "~" in plain.text
        check(calls(form, plain))
        for found in answers(params, *drafting(name, TOKENIZER.vocab_size), times=2, tokenizer=TOKENIZER):
            assert (found.token_ids, found.text) == (plain.token_ids, plain.text)


@pytest.mark.parametrize("form", FORMATS, ids=lambda form: form.name)
@pytest.mark.parametrize("name", ["hybrid", "noise"])
def test_free_text_until_a_call_begins(grammars: Grammars, name: str, form: CallFormat) -> None:
    """The model is made to like what begins a call; it says other things before, and may call several times."""
    grammar = call_grammar(grammars, Calling(form, FUNCTIONS))
    for bias, seed in [(0.0, 1), (1.0, 2), (2.5, 3)]:
        params = SamplingParams(
            max_tokens=150, temperature=1.0, seed=seed, grammar=grammar, logit_bias={BEGINS[form.marker]: bias}
        )
        (plain,) = answers(params, tokenizer=TOKENIZER)
        check(calls(form, plain) if plain.finish_reason == "stop" else [])
        for found in answers(params, *drafting(name, TOKENIZER.vocab_size), times=2, tokenizer=TOKENIZER):
            assert (found.token_ids, found.text) == (plain.token_ids, plain.text)


def test_calls_are_drafted_for_free(grammars: Grammars) -> None:
    grammar = call_grammar(grammars, Calling(BY_NAME["mistral"], FUNCTIONS, free=False, several=False))
    params = SamplingParams(max_tokens=150, grammar=grammar)
    (found,) = answers(params, *drafting("noise", TOKENIZER.vocab_size), tokenizer=TOKENIZER)
    assert found.stats.tau > 3
    assert found.events[0].text == "[TOOL_CALLS]"
