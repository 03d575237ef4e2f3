"""The two real vocabularies against transformers, and templates against transformers' renderer.

transformers 5 reads tokenizers out of GGUF files, but not always as the models were published (of 7,856 texts).
It leaves out the pre-tokenizer kind `smollm` (931 texts differ), so here it is given the published one. And it ranks
gemma's runs of spaces by their place in the file, which differs from the published merges in runs longer than 31.
"""

from __future__ import annotations

from typing import Any

import pytest

from medusakit.errors import TokenizerError
from medusakit.models.resolve import resolve
from medusakit.text.chat import chat_ids, render_chat
from medusakit.text.template import render
from medusakit.text.tokenizer import Tokenizer, load_tokenizer
from vocabularies import TEXTS, random_texts

pytestmark = pytest.mark.filterwarnings("ignore")

CORPUS = TEXTS + random_texts(1500, seed=5)
CONVERSATIONS: list[list[dict[str, Any]]] = [
    [{"role": "user", "content": "What is a B-tree?"}],
    [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "  Hi!\n"}],
    [
        {"role": "user", "content": "1 + 1?"},
        {"role": "assistant", "content": "2 👍🏽"},
        {"role": "user", "content": "and 2 + 2?"},
    ],
]


def theirs(alias: str) -> Any:
    from transformers import AutoTokenizer

    path = resolve(alias).path
    return AutoTokenizer.from_pretrained(str(path.parent), gguf_file=path.name)


@pytest.fixture(scope="module")
def smollm2() -> tuple[Tokenizer, Any]:
    from tokenizers import pre_tokenizers

    reference = theirs("smollm2")
    reference.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    return load_tokenizer(resolve("smollm2")), reference


@pytest.mark.model
def test_smollm2_ids(smollm2: tuple[Tokenizer, Any]) -> None:
    ours, reference = smollm2
    for text in CORPUS:
        ids = ours.encode(text)
        assert ids == reference.encode(text, add_special_tokens=False), text
        assert ours.decode(ids) == text
    text = "<|im_start|>user\nhi<|im_end|>\n"
    assert ours.encode(text, parse_special=True) == reference.encode(text, add_special_tokens=False)


@pytest.mark.model
def test_smollm2_chat(smollm2: tuple[Tokenizer, Any]) -> None:
    ours, reference = smollm2
    for messages in CONVERSATIONS:
        for prompt in (True, False):
            text = reference.apply_chat_template(messages, tokenize=False, add_generation_prompt=prompt)
            assert render_chat(ours, messages, add_generation_prompt=prompt) == text
            ids = reference.apply_chat_template(messages, add_generation_prompt=prompt, return_dict=False)
            assert chat_ids(ours, messages, add_generation_prompt=prompt) == ids


@pytest.mark.model
def test_smollm2_facts(smollm2: tuple[Tokenizer, Any]) -> None:
    ours, reference = smollm2
    assert (ours.vocab_size, ours.eos_ids, ours.bos_id) == (49152, {0, 2}, 1)
    assert ours.special_ids == set(range(17))
    for token_id in range(17, ours.vocab_size):
        text = ours.token_bytes(token_id).decode("utf-8", "ignore")
        if text.encode() == ours.token_bytes(token_id):
            assert reference.decode([token_id]) == text


@pytest.fixture(scope="module")
def gemma3() -> tuple[Tokenizer, Any]:
    return load_tokenizer(resolve("gemma3-270m")), theirs("gemma3-270m")


@pytest.mark.model
@pytest.mark.slow
def test_gemma3_ids(gemma3: tuple[Tokenizer, Any]) -> None:
    ours, reference = gemma3
    for text in CORPUS:
        ids = ours.encode(text)
        assert ids == reference.encode(text, add_special_tokens=False), text
        assert ours.decode(ids) == text
    assert ours.encode("a", add_special=True) == reference.encode("a")


@pytest.mark.model
@pytest.mark.slow
def test_gemma3_runs_of_spaces(gemma3: tuple[Tokenizer, Any]) -> None:
    """The published merges take the longest run first: ids 138 to 167 are 2 to 31 spaces, 236743 is one."""
    ours, _ = gemma3
    for count in range(1, 80):
        full, rest = divmod(count, 31)
        tail = [] if rest == 0 else [236743 if rest == 1 else 136 + rest]
        assert ours.encode(" " * count) == [167] * full + tail, count


@pytest.mark.model
@pytest.mark.slow
def test_gemma3_is_no_chat_model(gemma3: tuple[Tokenizer, Any]) -> None:
    ours, _ = gemma3
    assert ours.eos_ids == {1, 106}
    with pytest.raises(TokenizerError, match="no chat template"):
        chat_ids(ours, CONVERSATIONS[0])


TURNS = """
{{ bos_token }}
{%- for message in messages -%}
    {%- if (message['role'] == 'user') != (loop.index0 % 2 == (1 if messages[0].role == 'system' else 0)) -%}
        {%- if message.role != 'system' -%}{{ raise_exception("roles must alternate") }}{%- endif -%}
    {%- endif -%}
    {%- set role = 'model' if message['role'] == 'assistant' else message['role'] -%}
    {{ '<start_of_turn>' + role + '
' }}
    {%- if message['content'] is string -%}
        {{ message['content'] | trim }}
    {%- else -%}
        {%- for item in message['content'] -%}{{ item['text'] | trim }}{%- endfor -%}
    {%- endif -%}
    {{ '<end_of_turn>
' }}
{%- endfor -%}
{%- if add_generation_prompt %}{{'<start_of_turn>model
'}}{% endif %}
"""
TOOLS = """
{% if tools is not none %}
  {% for tool in tools %}
{{ tool | tojson(indent=4) }}
  {% endfor %}
{% endif %}
{% set ns = namespace(last=-1) %}
{% for message in messages[::-1] %}
    {% if message.role == "user" and ns.last < 0 %}{% set ns.last = loop.revindex0 %}{% endif %}
{% endfor %}
{% for message in messages %}
{% if loop.first and not loop.last %}{% continue %}{% endif %}
{% generation %}{{ message.role ~ ': ' ~ message.content }}{% endgeneration %}
{{ '|' if loop.index0 == ns.last }}{{ loop.length }}
{% endfor %}
"""


@pytest.mark.parametrize("template", [TURNS, TOOLS])
@pytest.mark.parametrize("messages", CONVERSATIONS)
@pytest.mark.parametrize("tools", [None, [{"name": "f", "parameters": {"type": "<object>", "é": [1, None]}}]])
def test_templates_render_as_transformers_renders_them(
    template: str, messages: list[dict[str, Any]], tools: list[dict[str, Any]] | None
) -> None:
    from transformers.utils.chat_template_utils import render_jinja_template

    shared = {"add_generation_prompt": True, "bos_token": "<bos>"}
    (expected,), _ = render_jinja_template([messages], tools=tools, chat_template=template, **shared)
    given = {**shared, "messages": messages, "tools": tools, "documents": None}
    assert render(template, given) == expected
