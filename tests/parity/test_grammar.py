"""Answers in a given form: whatever drafts, and however that is guided, the answer is that of plain decoding."""

from __future__ import annotations

import json

import numpy as np
import pytest

from fakes import EOS, ByteTokenizer
from grammar_fakes import PROMPT, answers, drafting
from medusakit.drafters.registry import HEADLESS
from medusakit.settings import SamplingParams
from medusakit.tree.policy import StaticPolicy
from medusakit.tree.topology import Draft, Topology
from medusakit.verify.grammar import Grammar, Grammars
from medusakit.verify.masked import Place

VOCAB = 258
STRING = {"type": "string", "pattern": "^[a-z]{1,6}$"}
SCHEMAS = {
    "keys": {"type": "object", "properties": {"name": STRING, "colour": {"enum": ["red", "green"]}, "number": {
        "type": "integer", "minimum": 10, "maximum": 99}}, "required": ["name", "colour", "number"],
        "additionalProperties": False},
    "optional": {"type": "object", "properties": {"first": {"type": "boolean"}, "second": {"type": "null"}},
                 "additionalProperties": False},
    "list": {"type": "array", "items": {"anyOf": [{"const": "nothing at all"}, {"type": "boolean"}]}, "minItems": 2,
             "maxItems": 4},
    "number": {"type": "integer", "minimum": 0, "maximum": 99},
}  # fmt: skip
CHANGES = {
    "greedy": {},
    "biased": {"logit_bias": {ord("t"): 3.0}, "repetition_penalty": 1.3},
    "sampled": {"temperature": 1.0, "seed": 3},
    "filtered": {"temperature": 0.7, "seed": 4, "top_k": 40, "top_p": 0.9, "logprobs": 2},
}


@pytest.fixture(scope="module")
def grammars() -> Grammars:
    pytest.importorskip("llguidance")
    return Grammars(ByteTokenizer(), VOCAB)


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("schema", SCHEMAS)
@pytest.mark.parametrize("name", [*HEADLESS, "hybrid", "noise"])
def test_every_drafter_says_what_plain_decoding_says(grammars, name, schema, change):
    jsonschema = pytest.importorskip("jsonschema")
    params = SamplingParams(max_tokens=120, grammar=grammars.json_schema(SCHEMAS[schema]), **CHANGES[change])
    (plain,) = answers(params)
    assert plain.finish_reason == "stop"
    jsonschema.validate(json.loads(plain.text), SCHEMAS[schema])
    for found in answers(params, *drafting(name), times=2):
        assert found.token_ids == plain.token_ids
        assert found.finish_reason == "stop"


def test_keys_come_many_at_a_time_whatever_drafts(grammars):
    params = SamplingParams(max_tokens=120, grammar=grammars.json_schema(SCHEMAS["keys"]))
    (found,) = answers(params, *drafting("noise"))
    assert found.stats.tau > 3
    assert sum(event.from_draft for event in found.events) > len("name: , colour: , number: ")


def place_after(grammar: Grammar, text: str) -> tuple[Place, list[int]]:
    ids = [*PROMPT, *text.encode()]
    place = Place(grammar, len(PROMPT))
    place.follow(ids)
    return place, ids


@pytest.mark.parametrize(
    "text", ["", "{", '{"name": "ab', '{"name": "ab", "colour": "', '{"name": "ab", "colour": "red"']
)
def test_asking_for_one_token_agrees_with_the_mask(grammars, text):
    grammar = grammars.json_schema(SCHEMAS["keys"])
    asked = [token for token in range(VOCAB) if place_after(grammar, text)[0].permits(token)]
    assert asked == place_after(grammar, text)[0].allowed().tolist()


def test_an_end_is_permitted_where_the_document_is_whole(grammars):
    grammar = grammars.json_schema(SCHEMAS["number"])
    assert not place_after(grammar, "")[0].permits(EOS)
    assert place_after(grammar, "4")[0].permits(EOS)
    assert place_after(grammar, "42")[0].allowed().tolist() == [EOS]


def test_a_guided_draft_holds_nothing_forbidden_and_all_that_is_forced(grammars):
    place, ids = place_after(grammars.json_schema(SCHEMAS["keys"]), '{"name": "a')
    tokens = [ids[-1], ord("b"), ord("!"), ord('"'), ord("c"), ord(",")]
    parents = [-1, 0, 0, 0, 2, 3]  # "!" and what follows it go
    draft = Draft(Topology.from_parents(parents), np.array(tokens), np.zeros(6, np.float32))
    found = place.guided(draft, ids)
    said = {
        bytes(found.tokens[found.topology.path(node)[1:]].tolist()).decode() for node in range(1, len(found.tokens))
    }
    assert "b" in said
    assert '", "colour": "' in said
    assert not any("!" in text for text in said)
    assert place.guided(draft, ids).tokens.tolist() == found.tokens.tolist(), "the place did not move"


def test_where_the_document_is_whole_the_end_is_drafted(grammars):
    place, ids = place_after(grammars.json_schema(SCHEMAS["number"]), "42")
    assert place.guided(Draft.plain(ids[-1]), ids).tokens.tolist() == [ids[-1], EOS]


def test_a_static_tree_keeps_its_size(grammars):
    place, ids = place_after(grammars.json_schema(SCHEMAS["keys"]), "{")
    shape = Topology.dense([2, 2])
    draft = Draft(shape, np.zeros(7, np.int64), np.full(7, -1.0, np.float32))
    (tree,) = StaticPolicy(shape).select([place.guided(draft, ids)], [12], 10)
    assert bytes(tree.tokens[1:].tolist()) == b'"name"'
