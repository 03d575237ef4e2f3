"""Structured output, measured: bounded JSON schemas times prompts, with speculation and without, in turns.

    python benchmarks/schemas.py [--limit N] [--json FILE]

Says how many answers are valid (by `jsonschema`) and ended by themselves, whether both ways gave the same tokens, how
fast they were, and whether answers to unbounded schemas that their length cut off are beginnings of documents.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import jsonschema

from medusakit.bench.circumstances import machine, versions
from medusakit.bench.stats import paired_ratio
from medusakit.engine.events import GenerationResult
from medusakit.llm import LLM
from medusakit.settings import SamplingParams

MAX_TOKENS = 256  # more than the longest document of any schema below has bytes
CUT_TOKENS = 32
Schema = dict[str, Any]


def record(required: Sequence[str] | None = None, **properties: Schema) -> Schema:
    names = list(properties) if required is None else list(required)
    return {"type": "object", "properties": properties, "required": names, "additionalProperties": False}


def whole(low: int, high: int) -> Schema:
    return {"type": "integer", "minimum": low, "maximum": high}


def word(length: int) -> Schema:
    return {"type": "string", "pattern": f"^[A-Za-z]{{1,{length}}}$"}


def words(length: int) -> Schema:
    return {"type": "string", "pattern": f"^[A-Z][a-z ]{{1,{length}}}$"}


def some(items: Schema, low: int, high: int) -> Schema:
    return {"type": "array", "items": items, "minItems": low, "maxItems": high}


def one_of(*values: Any) -> Schema:
    return {"enum": list(values)}


FLAG: Schema = {"type": "boolean"}
TEXT: Schema = {"type": "string", "maxLength": 8}
SCHEMAS: dict[str, Schema] = {
    "person": record(name=words(16), age=whole(0, 120), city=word(12)),
    "sentiment": record(sentiment=one_of("positive", "negative", "neutral"), confidence=whole(0, 100)),
    "tags": record(tags=some(word(10), 1, 4), language=one_of("English", "German", "French")),
    "flags": record(is_question=FLAG, is_polite=FLAG, is_urgent=FLAG, needs_answer=FLAG),
    "nested": record(author=record(first_name=word(10), last_name=word(10)), year=whole(1900, 2100)),
    "deep": record(location=record(country=word(10), address=record(street=words(12), number=whole(1, 999)))),
    "optional": record(["title"], title=words(20), subtitle=words(16), rating=whole(1, 5)),
    "either": record(
        answer={"anyOf": [record(kind=one_of("yes"), sure=FLAG), record(kind=one_of("no"), why=words(16))]}
    ),
    "short_text": record(summary=TEXT, category=one_of("science", "art", "sport", "other")),
    "date": record(date={"type": "string", "pattern": "^20[0-9]{2}-[01][0-9]-[0-3][0-9]$"}, event=words(14)),
    "colour": record(hex={"type": "string", "pattern": "^#[0-9a-f]{6}$"}, name=one_of("red", "green", "blue", "grey")),
    "scores": record(scores=some(whole(0, 10), 3, 3), average=whole(0, 10)),
    "points": some(record(x=whole(-9, 9), y=whole(-9, 9)), 2, 4),
    "order": record(customer=word(10), items=some(record(product=word(8), quantity=whole(1, 9)), 1, 2), paid=FLAG),
    "maybe": record(name=word(10), nickname={"anyOf": [word(8), {"type": "null"}]}, active=FLAG),
    "route": record(start=word(10), end=word(10), transport=one_of("train", "bus", "on foot"), minutes=whole(1, 600)),
    "call": record(
        function=one_of("search", "calculate", "translate"), arguments=record(query=words(20), limit=whole(1, 9))
    ),
    "choice": one_of("definitely yes", "probably yes", "probably no", "definitely no"),
    "list": some(one_of("monday", "tuesday", "wednesday", "thursday", "friday"), 1, 3),
    "meeting": record(
        topic=words(16), priority=one_of("low", "medium", "high"), attendees=some(word(8), 1, 3), remote=FLAG
    ),
}
UNBOUNDED: dict[str, Schema] = {
    "words": some({"type": "string"}, 50, 100),
    "numbers": {"type": "array", "items": {"type": "integer"}, "minItems": 60},
    "objects": {"type": "array", "items": record(name={"type": "string"}, value={"type": "number"}), "minItems": 30},
}
PROMPTS = (
    "Marie Curie was born in Warsaw and worked in Paris on radioactivity.",
    "The service was slow, but the soup was wonderful and the waiter apologised.",
    "Could you please send me the figures of the second quarter before Friday?",
    "A train leaves Hamburg at nine and reaches Berlin after two hours.",
    "The match ended three to one after a late goal by the visitors.",
    "Water boils at a lower temperature in the mountains.",
    "I ordered two lamps and a chair, and I have already paid.",
    "The museum shows paintings of the nineteenth century until May.",
    "She teaches mathematics at a small school near the coast.",
    "Our garden has four apple trees, a pond and a grey cat.",
)


@dataclass(frozen=True, slots=True)
class Pair:
    """One request, both ways."""

    schema: str
    valid: bool
    equal: bool
    tokens: int
    steps: int
    drafted_s: float
    plain_s: float
    text: str


def main() -> None:
    options = _options()
    with LLM.load(options.model, weights=options.weights, threads=options.threads) as llm:
        requests = [(name, prompt) for prompt in PROMPTS for name in SCHEMAS][:: options.every][: options.limit]
        grammars = {name: llm.grammars.json_schema(schema) for name, schema in SCHEMAS.items()}
        _timed(llm, PROMPTS[0], "choice", grammars["choice"], True)  # so that both ways find everything warm
        _timed(llm, PROMPTS[0], "choice", grammars["choice"], False)
        pairs = [_pair(llm, name, prompt, grammars[name], place % 2) for place, (name, prompt) in enumerate(requests)]
        cut = [_cut(llm, schema, speculation) for schema in UNBOUNDED.values() for speculation in (True, False)]
    document = {"machine": machine(), "versions": versions()} | _summary(pairs) | {"cut": sum(cut), "cut_of": len(cut)}
    print(json.dumps(document, indent=2))
    if options.json:
        document["requests"] = [asdict(pair) for pair in pairs]
        options.json.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--weights", default="f32")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--limit", type=int, help="requests at most, of 200")
    parser.add_argument("--every", type=int, default=1, help="take only every so manieth request")
    parser.add_argument("--json", type=Path, metavar="FILE")
    return parser.parse_args()


def _pair(llm: LLM, name: str, prompt: str, grammar: Any, plain_first: int) -> Pair:
    found = {way: _timed(llm, prompt, name, grammar, way) for way in ((False, True) if plain_first else (True, False))}
    (drafted, drafted_s), (plain, plain_s) = found[True], found[False]
    valid = _valid(drafted, SCHEMAS[name]) and _valid(plain, SCHEMAS[name])
    stats = drafted.stats
    equal = drafted.token_ids == plain.token_ids
    return Pair(name, valid, equal, stats.num_tokens, stats.num_steps, drafted_s, plain_s, drafted.text)


def _timed(llm: LLM, text: str, name: str, grammar: Any, speculation: bool) -> tuple[GenerationResult, float]:
    """The answer, and the seconds of its decoding, the prompt left out: that is the same for both ways."""
    params = SamplingParams(max_tokens=MAX_TOKENS, grammar=grammar)
    with llm.stream(f"Describe this text as JSON ({name}): {text}", params, speculation=speculation) as stream:
        started = time.perf_counter()
        for _ in stream:
            pass
        return stream.result, time.perf_counter() - started


def _valid(result: GenerationResult, schema: Schema) -> bool:
    try:
        jsonschema.validate(json.loads(result.text), schema)
    except (ValueError, jsonschema.ValidationError):
        return False
    return result.finish_reason == "stop"


def _cut(llm: LLM, schema: Schema, speculation: bool) -> bool:
    """Whether an answer that its length ended is the beginning of a document, and says so."""
    grammar = llm.grammars.json_schema(schema)
    found = llm.generate(PROMPTS[0], SamplingParams(max_tokens=CUT_TOKENS, grammar=grammar), speculation=speculation)
    legal = grammar.matcher().try_consume_tokens(list(found.token_ids)) == len(found.token_ids)
    return bool(legal) and found.finish_reason == "length"


def _summary(pairs: Sequence[Pair]) -> dict[str, Any]:
    tokens = sum(pair.tokens for pair in pairs)
    ratio = paired_ratio([(pair.tokens, pair.drafted_s, pair.tokens, pair.plain_s) for pair in pairs])
    return {
        "num_requests": len(pairs),
        "num_valid": sum(pair.valid for pair in pairs),
        "num_equal": sum(pair.equal for pair in pairs),
        "tokens_per_s": {
            "speculation": round(tokens / sum(pair.drafted_s for pair in pairs), 1),
            "plain": round(tokens / sum(pair.plain_s for pair in pairs), 1),
        },
        "speedup": asdict(ratio),
        "tau": round(sum(pair.tokens - 1 for pair in pairs) / sum(pair.steps for pair in pairs), 3),
        "seconds": round(sum(pair.drafted_s + pair.plain_s for pair in pairs), 1),
    }


if __name__ == "__main__":
    main()
