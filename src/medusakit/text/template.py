"""Chat templates: jinja in a sandbox, with what transformers gives them, and with bounds.

A template comes with a model file, so it is foreign code: it sees plain values only, cannot reach Python's objects or
change what it is given, and its loops and its output are bounded.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from functools import lru_cache
from typing import Any

from jinja2 import Template, TemplateError, meta, nodes, pass_context
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment

MAX_ROUNDS = 1_000_000  # loop rounds of one rendering; a long conversation with tools needs some thousands
MAX_CHARS = 50_000_000
_BUDGET = "_loop_budget"


class TemplateRefusal(TemplateError):
    """The template called raise_exception: it does not take these messages."""


class _Budget:
    __slots__ = ("left",)

    def __init__(self, rounds: int) -> None:
        self.left = rounds

    def spend(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise SecurityError(f"its loops take more than {MAX_ROUNDS:,} rounds")


class _Generation(Extension):
    """`{% generation %}` marks the assistant's text for training masks; rendering only needs what is inside."""

    tags = {"generation"}

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def render(source: str, variables: Mapping[str, Any]) -> str:
    """Raises jinja2.TemplateError, TemplateRefusal where the template itself refuses, or whatever else it provokes."""
    template = _compile(source)
    parts: list[str] = []
    size = 0
    for part in template.generate({**variables, _BUDGET: _Budget(MAX_ROUNDS)}):
        parts.append(part)
        size += len(part)
        if size > MAX_CHARS:
            raise SecurityError(f"it writes more than {MAX_CHARS:,} characters")
    return "".join(parts)


@lru_cache(maxsize=8)
def _compile(source: str) -> Template:
    environment = _environment()
    tree = environment.parse(source)
    for loop in list(tree.find_all(nodes.For)):
        loop.iter = nodes.Filter(loop.iter, "counted", [], [], None, None)
    code = environment.compile(tree)
    return environment.template_class.from_code(environment, code, environment.make_globals(None))


@lru_cache(maxsize=8)
def variables_of(source: str) -> frozenset[str]:
    """Names that the template takes from outside (`messages`, `tools`). Raises jinja2.TemplateError."""
    return frozenset(meta.find_undeclared_variables(_environment().parse(source)))


def _environment() -> ImmutableSandboxedEnvironment:
    """trim_blocks, lstrip_blocks, loop controls and the functions below: as transformers renders templates."""
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols, _Generation]
    )
    environment.filters["tojson"] = _tojson
    environment.filters["counted"] = _counted
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = _strftime_now
    return environment


@pass_context
def _counted(context: Context, values: Iterable[Any]) -> Iterator[Any]:
    """What every `for` runs over: the same values, each paid for."""
    budget: _Budget = context.parent[_BUDGET]
    for value in values:
        budget.spend()
        yield value


def _raise_exception(message: str) -> None:
    raise TemplateRefusal(message)


def _strftime_now(format: str) -> str:
    return datetime.now().strftime(format)


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """jinja's own escapes <, > and & for HTML; a model must read them as they are."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)
