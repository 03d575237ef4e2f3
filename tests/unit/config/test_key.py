"""What a value may be, and how a wrong one is refused."""

from __future__ import annotations

import pytest

from medusakit.config import KEYS, nearest, resolve
from medusakit.errors import ConfigError


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("temperature", "0.7", 0.7),
        ("temperature", "1", 1.0),
        ("max_tokens", "16", 16),
        ("stream", "off", False),
        ("stop", "END", ("END",)),
        ("weights", "int4", "int4"),
    ],
)
def test_text_becomes_a_value(name: str, text: str, value: object) -> None:
    assert getattr(resolve({name: text}, env={}).config, name) == value


@pytest.mark.parametrize(
    ("name", "text", "part"),
    [
        ("temperature", "hot", "--temperature: 'hot' is not a number from 0 to 100"),
        ("top_p", "nan", "--top-p: nan is not a number from 0 to 1"),
        ("top_p", "1.5", "1.5"),
        ("cache_memory", "inf", "--cache-memory: inf is not a number from 0 up"),
        ("max_body", "1e999", "inf is not a number"),
        ("max_tokens", "0", "a whole number from 1 up"),
        ("max_tokens", "2.5", "a whole number"),
        ("weights", "fp16", "one of auto, f32, int8, int4"),
        ("stream", "maybe", "true or false"),
    ],
)
def test_a_bad_value_names_place_value_and_expectation(name: str, text: str, part: str) -> None:
    with pytest.raises(ConfigError, match=".") as caught:
        resolve({name: text}, env={})
    assert part in caught.value.message


def test_every_key_has_help_and_a_default_in_range() -> None:
    for key in KEYS.values():
        assert key.setting.help
        if key.default is not None:
            key.check(key.default, key.name)


@pytest.mark.parametrize(("given", "meant"), [("max_token", "max_tokens"), ("frequency", "frequency_penalty")])
def test_a_misspelt_or_cut_name_finds_the_known_one(given: str, meant: str) -> None:
    assert nearest(given, ("max_tokens", "frequency_penalty", "response_format")) == meant


def test_some_common_letters_are_no_likeness() -> None:
    assert nearest("reasoning_effort", ("response_format", "max_tokens")) is None
