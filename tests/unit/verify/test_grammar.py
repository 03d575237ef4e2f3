"""Answers in a given form: always of the form, the same with trees and without."""

import json

import numpy as np
import pytest

from engine_fakes import Prophet
from fakes import EOS, ByteTokenizer
from medusakit.engine.controller import FixedController, PlainController
from medusakit.engine.engine import Engine
from medusakit.engine.plan import make_plan
from medusakit.errors import UsageError
from medusakit.runtimes.reference import random_reference
from medusakit.settings import SamplingParams
from medusakit.tree.policy import StaticPolicy
from medusakit.tree.topology import Topology
from medusakit.verify.compiling import LIMITS
from medusakit.verify.grammar import MAX_SCHEMA_BYTES, Grammars

VOCAB = 258
PROMPT = [256, 65, 66, 67]
SCHEMAS = [
    {"type": "object", "properties": {"a": {"type": "integer", "maximum": 99, "minimum": 0}}, "required": ["a"],
     "additionalProperties": False},
    {"enum": ["red", "green", "blue"]},
    {"type": "array", "items": {"type": "boolean"}, "minItems": 2, "maxItems": 4},
    {"type": "object", "properties": {"name": {"type": "string", "maxLength": 6}, "ok": {"type": "boolean"}},
     "required": ["name", "ok"], "additionalProperties": False},
]  # fmt: skip


class Bytes(ByteTokenizer):
    space_prefix = False


@pytest.fixture(scope="module")
def grammars():
    return Grammars(Bytes(), VOCAB)


def answer(params, drafter=None):
    """The answer of a random model: with `drafter`, by trees."""
    runtime = random_reference(7, VOCAB, context_length=256, max_rows=1)
    plan = make_plan(drafter, StaticPolicy(Topology.dense([3, 2])), 10) if drafter else None
    engine = Engine(runtime, Bytes(), FixedController(plan) if plan else PlainController())
    session = engine.start(PROMPT, params)
    for _ in engine.run(session):
        pass
    engine.finish(session)
    return session.result()


@pytest.mark.parametrize("schema", SCHEMAS, ids=str)
@pytest.mark.parametrize("change", [{}, {"temperature": 1.0, "seed": 3}, {"temperature": 0.7, "seed": 4, "top_k": 40}])
def test_a_random_model_writes_what_the_schema_says(grammars, schema, change):
    jsonschema = pytest.importorskip("jsonschema")
    params = SamplingParams(max_tokens=120, grammar=grammars.json_schema(schema), **change)
    plain = answer(params)
    assert plain.finish_reason == "stop"
    jsonschema.validate(json.loads(plain.text), schema)
    truth = Prophet(0.8, vocab_size=VOCAB, truths={0: [*PROMPT, *plain.token_ids]})
    drafted = answer(params, truth)
    assert drafted.token_ids == plain.token_ids
    assert sum(drafted.stats.accepted_by_depth) > 0
    noise = answer(params, Prophet(0.0, vocab_size=VOCAB))
    assert noise.token_ids == plain.token_ids


def test_an_answer_cut_by_its_length_is_a_beginning(grammars):
    schema = {"type": "array", "items": {"type": "integer"}, "minItems": 50}
    found = answer(SamplingParams(max_tokens=20, temperature=1.0, seed=1, grammar=grammars.json_schema(schema)))
    assert found.finish_reason == "length"
    assert found.text.startswith("[")
    assert EOS not in found.token_ids


def test_control_tokens_and_unused_ids_are_never_allowed(grammars):
    rule_of_any = grammars.json_schema({"type": "string"}).matcher()
    rule_of_any.consume_tokens([ord('"')])
    bits = np.unpackbits(np.frombuffer(rule_of_any.compute_bitmask(), np.uint8), bitorder="little")[:VOCAB]
    assert bits[ord("a")] == 1
    assert bits[256] == bits[EOS] == 0


@pytest.mark.parametrize(
    "schema", [{"type": "nothing"}, {"$ref": "#/nowhere"}, {"type": "object", "minProperties": "x"}]
)
def test_schemas_that_cannot_be_followed(grammars, schema):
    with pytest.raises(UsageError, match="the JSON schema cannot be followed"):
        grammars.json_schema(schema)


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ({"description": "x" * MAX_SCHEMA_BYTES}, "bytes long; at most"),
        ({"type": "string", "pattern": "(?=a)b"}, "look-around"),
    ],
)
def test_a_refusal_names_its_reason(grammars, schema, reason):
    with pytest.raises(UsageError, match=reason):
        grammars.json_schema(schema)


def test_a_schema_that_is_too_much_work(grammars, monkeypatch):
    monkeypatch.setitem(LIMITS, "initial_lexer_fuel", 10)
    with pytest.raises(UsageError, match="cannot be followed"):
        grammars.json_schema({"enum": ["too", "much"]})


def test_matchers_of_one_grammar_stand_apart(grammars):
    grammar = grammars.json_schema(SCHEMAS[1])
    first, second = grammar.matcher(), grammar.matcher()
    assert first.consume_tokens(list(b'"red"'))
    assert first.is_stopped()
    assert second.consume_tokens(list(b'"bl'))
    assert second.compute_ff_bytes() == b'ue"'


def test_equal_grammars_are_equal(grammars):
    assert grammars.json_schema(SCHEMAS[1]) == grammars.json_schema(SCHEMAS[1]) != grammars.json_schema(SCHEMAS[2])


def test_a_grammar_ends_by_itself(grammars):
    with pytest.raises(UsageError, match="ignore_eos"):
        SamplingParams(ignore_eos=True, grammar=grammars.json_schema()).validate()
