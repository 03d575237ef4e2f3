from __future__ import annotations

from datetime import datetime

import jinja2
import pytest

from medusakit.text import template
from medusakit.text.template import TemplateRefusal, render, variables_of


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("{% for x in xs %}{{ loop.index0 }}{{ x }}{{ ',' if not loop.last }}{% endfor %}", "0a,1b,2c"),
        ("{% for x in xs if x != 'b' %}{{ loop.length }}{{ x }}{% else %}none{% endfor %}", "2a2c"),
        ("{% for x in [] %}x{% else %}none{% endfor %}", "none"),
        ("{% for x in missing %}x{% endfor %}", ""),
        ("{% for x in xs %}{% if x == 'b' %}{% break %}{% endif %}{{ x }}{% endfor %}", "a"),
        ("{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}", "p=1;q=2;"),
        ("{{ loop is defined }}{% for x in xs %}{{ loop.previtem }}{{ loop.nextitem }}|{% endfor %}", "Falseb|ac|b|"),
        ("{% for x in xs %}\n  {% if true %}\n{{ x }}\n  {% endif %}\n{% endfor %}", "a\nb\nc\n"),
        ("{{ d | tojson }}", '{"p": 1, "q": 2}'),
        ("{{ '<é>&' | tojson }}", '"<é>&"'),
        ("{{ d | tojson(indent=1) }}", '{\n "p": 1,\n "q": 2\n}'),
        ("{% set ns = namespace(n=0) %}{% for x in xs %}{% set ns.n = ns.n + 1 %}{% endfor %}{{ ns.n }}", "3"),
        ("a{% generation %}b{{ xs[0] }}{% endgeneration %}c", "abac"),
        ("{% macro m(x) %}[{{ x }}]{% endmacro %}{{ m('y') }}", "[y]"),
        ("{{ xs[::-1] | join('') }}{{ '  t ' | trim }}", "cbat"),
    ],
)
def test_renders(source: str, text: str) -> None:
    assert render(source, {"xs": ["a", "b", "c"], "d": {"p": 1, "q": 2}}) == text


def test_now() -> None:
    assert render("{{ strftime_now('%Y') }}", {}) == datetime.now().strftime("%Y")


def test_refusal() -> None:
    with pytest.raises(TemplateRefusal, match="roles must alternate"):
        render("{{ raise_exception('roles must alternate') }}", {})


@pytest.mark.parametrize(
    "source",
    [
        "{{ ''.__class__.__mro__ }}",
        "{{ messages.append(1) }}",
        "{{ messages.__init__.__globals__ }}",
        "{{ raise_exception.__globals__.x }}",
        "{% for x in range(1000000) %}{% endfor %}",
    ],
)
def test_the_sandbox_holds(source: str) -> None:
    with pytest.raises((jinja2.exceptions.SecurityError, OverflowError)):
        render(source, {"messages": []})


def test_nested_loops_end() -> None:
    source = "{% for a in range(9999) %}{% for b in range(9999) %}{% endfor %}{% endfor %}"
    with pytest.raises(jinja2.exceptions.SecurityError, match="1,000,000 rounds"):
        render(source, {})


def test_output_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(template, "MAX_CHARS", 1000)
    with pytest.raises(jinja2.exceptions.SecurityError, match="1,000 characters"):
        render("{% for a in range(200) %}{{ 'x' * 10 }}{% endfor %}", {})


def test_each_rendering_has_its_own_budget() -> None:
    source = "{% for a in range(90000) %}{% endfor %}"
    for _ in range(12):
        assert render(source, {}) == ""


@pytest.mark.parametrize(
    ("source", "known"),
    [
        ("{% if tools %}{{ tools | tojson }}{% endif %}", True),
        ("{% if not tools is defined %}{% set tools = none %}{% endif %}{% for t in tools %}{{ t }}{% endfor %}", True),
        ("{# no tools #}{{ messages[0].tools }}", False),
        ("{% generation %}{{ messages }}{% endgeneration %}", False),
    ],
)
def test_which_names_a_template_takes(source: str, known: bool) -> None:
    assert ("tools" in variables_of(source)) == known
