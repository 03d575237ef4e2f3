"""Calls of functions over HTTP: are they valid, the same with and without speculation, and how fast are both?"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import jsonschema
from schemas import PROMPTS, SCHEMAS
from served import CHAT, Served

from medusakit.bench.stats import paired_ratio

TEMPLATE = Path(__file__).parents[1] / "examples" / "tools.jinja"
FUNCTIONS = {name: schema for name, schema in SCHEMAS.items() if schema.get("type") == "object"}


def tools(options: argparse.Namespace) -> dict[str, Any]:
    """Every function has the arguments of a schema of benchmarks/schemas.py, and must be called; some prompts for each.
    Who goes first changes with every request. The time is that of decoding, as the server gives it."""
    asked = [(name, prompt) for prompt in PROMPTS for name in FUNCTIONS]
    asked = asked[:: max(1, len(asked) // options.questions)]
    calls, pairs = [], []
    with Served(options.model, "--weights", options.weights, "--chat-template", str(TEMPLATE)) as server:
        for place, (name, prompt) in enumerate([asked[0], *asked]):
            both = {off: _call(server, name, prompt, off) for off in ((True, False) if place % 2 else (False, True))}
            if place:  # the first is a warm-up
                calls.append((name, both[False], both[True]))
                pairs.append((*_work(both[False]), *_work(both[True])))
    ratio = paired_ratio(pairs)
    return {
        "calls": len(calls),
        "valid": sum(_valid(name, drafted) for name, drafted, _ in calls),
        "equal": sum(_said(drafted) == _said(plain) for _, drafted, plain in calls),
        "tokens_per_s": sum(pair[0] for pair in pairs) / sum(pair[1] for pair in pairs),
        "plain_tokens_per_s": sum(pair[2] for pair in pairs) / sum(pair[3] for pair in pairs),
        "speedup": {"ratio": ratio.ratio, "low": ratio.low, "high": ratio.high},
        "tokens_per_step": sum(pair[0] for pair in pairs)
        / sum(drafted["timings"]["draft_rounds"] for _, drafted, _ in calls),
    }


def _call(server: Served, name: str, prompt: str, off: bool) -> dict[str, Any]:
    functions = [
        {"type": "function", "function": {"name": one, "description": f"keeps a record: {one}", "parameters": schema}}
        for one, schema in FUNCTIONS.items()
        if one in (name, "person", "date")
    ]
    return server.post(CHAT, {
        "messages": [{"role": "user", "content": f"Keep a record ({name}) of this: {prompt}"}],
        "tools": functions,
        "tool_choice": {"type": "function", "function": {"name": name}},
        "max_tokens": 300,
        "medusa": {"off": off},
    })  # fmt: skip


def _said(answer: dict[str, Any]) -> list[tuple[str, str]]:
    calls = answer["choices"][0]["message"]["tool_calls"]
    return [(call["function"]["name"], call["function"]["arguments"]) for call in calls]


def _valid(name: str, answer: dict[str, Any]) -> bool:
    try:
        ((called, arguments),) = _said(answer)
        jsonschema.validate(json.loads(arguments), FUNCTIONS[name])
    except (ValueError, jsonschema.ValidationError):
        return False
    return called == name


def _work(answer: dict[str, Any]) -> tuple[int, float]:
    """Tokens after the first, which prefill makes, and seconds of their decoding."""
    return answer["timings"]["predicted_n"] - 1, answer["timings"]["predicted_ms"] / 1e3
