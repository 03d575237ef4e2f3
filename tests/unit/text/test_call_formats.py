from __future__ import annotations

import pytest

from medusakit.text.call_formats import BY_NAME, FORMATS, format_of

HERMES = """{%- if tools %}<tools>{{ tools | tojson }}</tools> For each call:
<tool_call>
{\\"name\\": <function-name>, \\"arguments\\": <args-json-object>}
</tool_call>{%- endif %}"""
LLAMA = """{% if tools is not none %}Environment: ipython {% endif %}<|start_header_id|>{{ role }}<|end_header_id|>
Respond in the format {"name": function name, "parameters": dictionary of argument names and values}."""
QWEN_CODER = """{{- '\\n<tool_call>\\n<function=' + call.name + '>\\n' }}{%- for name, value in call.arguments|items %}
{{- '<parameter=' + name + '>\\n' }}{{- value }}{{- '\\n</parameter>\\n' }}{% endfor %}</function>\\n</tool_call>"""
GLM_45 = """{{ '\\n<tool_call>' + call.name }}{% for name, value in call.arguments.items() %}
<arg_key>{{ name }}</arg_key>
<arg_value>{{ value | tojson if value is not string else value }}</arg_value>
{% endfor %}</tool_call>"""
GLM_47 = """{{- '<tool_call>' + call.name -}}{% for name, value in call.arguments.items() %}
{{- '<arg_key>' + name }}</arg_key><arg_value>{{ value | tojson if value is not string else value }}</arg_value>
{%- endfor %}</tool_call>"""
MISTRAL = "[AVAILABLE_TOOLS]{{ tools }}[/AVAILABLE_TOOLS]{{ '[TOOL_CALLS] [' }}"


@pytest.mark.parametrize(
    ("template", "name"),
    [
        (HERMES, "hermes"),
        (LLAMA, "llama3"),
        (LLAMA + HERMES, "hermes"),
        (MISTRAL, "mistral"),
        (MISTRAL + "{{ name + '[ARGS]' + arguments }}", "mistral-args"),
        (MISTRAL + "{{ name + '[CALL_ID]' + id + '[ARGS]' + arguments }}", "mistral-id"),
        (QWEN_CODER, "qwen3-coder"),
        (QWEN_CODER.replace("<tool_call>\\n<", "<tool_call><"), None),
        (GLM_45, "glm45"),
        (GLM_47, "glm47"),
        ("{{ tools }} <tool_call>[{'name': x, 'arguments': y}]</tool_call>", None),
        ("{% for message in messages %}<|im_start|>{{ message.role }}{% endfor %}", None),
    ],
)
def test_a_format_is_told_by_its_template(template: str, name: str | None) -> None:
    found = format_of(template)
    assert (found.name if found else None) == name


def test_names_are_unique_and_each_format_begins_with_something() -> None:
    assert len(BY_NAME) == len(FORMATS)
    assert all(one.start for one in FORMATS)
