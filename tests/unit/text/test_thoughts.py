from __future__ import annotations

import pytest

from medusakit.text.thoughts import Thought, thought_of

QWEN = "{{ '<|im_start|>assistant\\n' }}{% if enable_thinking is false %}{{ '<think>\\n\\n</think>\\n\\n' }}{% endif %}"
MISTRAL = "{{ '[THINK]' + part.thinking + '[/THINK]' }}"


@pytest.mark.parametrize(
    ("template", "prompt", "found"),
    [
        (QWEN, "<|im_start|>assistant\n", Thought("<think>", "</think>")),
        (QWEN, "<|im_start|>assistant\n<think>\n", Thought("", "</think>")),
        (QWEN, "<|im_start|>assistant\n<think>\n\n</think>\n\n", None),
        (QWEN, "what is <think>?<|im_end|>\n<|im_start|>assistant\n", Thought("<think>", "</think>")),
        (MISTRAL, "[/INST]", Thought("[THINK]", "[/THINK]")),
        ("{{ content.split('</think>')[-1] }}", "assistant\n", None),
        ("{{ messages }}", "<think>", None),
    ],
    ids=str,
)
def test_a_thought_is_told_by_the_template_and_the_end_of_the_prompt(
    template: str, prompt: str, found: Thought | None
) -> None:
    assert thought_of(template, prompt) == found
