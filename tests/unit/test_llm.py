"""What the Python face refuses as a prompt, before anything runs."""

from __future__ import annotations

from typing import Any
from unittest.mock import Mock

import pytest

from medusakit.errors import UsageError
from medusakit.llm import LLM
from medusakit.settings import SamplingParams


@pytest.mark.parametrize(
    ("prompt", "message"),
    [
        ("", "the prompt is empty"),
        (" \n", "the prompt is empty"),
        ([], "the prompt is empty"),
        ([{"role": "user", "content": " "}], "the prompt is empty"),
        (5, "a text or a list of messages, got int"),
        (None, "got NoneType"),
        (b"hi", "got bytes"),
        ([5], "a message has a role and a content, got '5'"),
        ([{"content": "x"}], "a message has a role and a content"),
        ([{"role": "user"}], "a message has a role and a content"),
        ([{"role": 5, "content": "x"}], "a message has a role and a content"),
    ],
)
def test_prompts_that_cannot_be_meant(prompt: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        LLM(Mock()).encode(prompt)


def test_a_bias_that_is_no_mapping() -> None:
    with pytest.raises(UsageError, match=r"logit_bias is \[1\]; expected a mapping"):
        SamplingParams(logit_bias=[1]).validate()  # type: ignore[arg-type]
