"""What the Python face refuses as a prompt, before anything runs."""

from __future__ import annotations

from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

from bench_fakes import toy_llm
from medusakit.engine.engine import Engine
from medusakit.errors import UsageError
from medusakit.llm import LLM
from medusakit.settings import SamplingParams

HELLO = {"role": "user", "content": "hi"}


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
        ([5], r"a message has a role and a content, got 5 \(int\) \(message 0\)"),
        ([{"content": "x"}], "a message has a role and a content"),
        ([{"role": "user"}], "a message has a role and a content"),
        ([{"role": 5, "content": "x"}], "a message has a role and a content"),
        ([HELLO, {"role": "user", "content": None}], r"content of message 1 is None \(NoneType\), expected a text"),
        ([{"role": "user", "content": 5}], r"content of message 0 is 5 \(int\), expected a text"),
        (
            [HELLO, HELLO, {"role": "user", "content": [{"type": "text", "text": "hi"}]}],
            r"content of message 2 is \[.*\] \(list\), expected a text",
        ),
    ],
)
def test_prompts_that_cannot_be_meant(prompt: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        LLM(Mock()).encode(prompt)
    assert caught.value.hint


def test_a_message_that_only_calls_tools_needs_no_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("medusakit.engine.prompt.chat_ids", lambda tokenizer, messages: [len(messages)])
    call = {"role": "assistant", "content": None, "tool_calls": [{"name": "f"}]}
    assert LLM(Mock()).encode([HELLO, call]) == [2]  # type: ignore[list-item]


@pytest.mark.parametrize("text", [None, 5, b"hi", [HELLO]])
def test_what_is_said_in_a_chat_is_text(text: Any) -> None:
    with pytest.raises(UsageError, match="expected a text"):
        LLM(Mock()).chat().send(text)
    if text is not None:
        with pytest.raises(UsageError, match="the system message is .*, expected a text"):
            LLM(Mock()).chat(text)


class _Model:
    """A vocabulary of 23 letters; what reaches the engine is kept."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        parts = Mock()
        parts.runtime.spec.vocab_size = 23
        self.llm = LLM(parts)
        self.started: list[list[int]] = []
        monkeypatch.setattr(self.llm.engine, "start", lambda ids, params: self.started.append(ids))


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        ([1, 2.0], r"token id 1 is 2.0 \(float\), expected a whole number from 0 to 22"),
        ([True], r"token id 0 is True \(bool\)"),
        ([np.True_], "token id 0 is np.True_"),
        ([1, -1], r"token id 1 is -1 \(int\), expected a whole number from 0 to 22"),
        ([23], "token id 0 is 23"),
        ([2**70], "token id 0 is"),
        (["a"], "token id 0 is 'a'"),
        ([None], "token id 0 is None"),
        (np.zeros((2, 3), np.int64), "token id 0 is array"),
        (np.array([1.0]), "token id 0 is np.float64"),
        ("hello", "token ids are a list of whole numbers, got 'hello'"),
        (5, "token ids are a list of whole numbers, got 5"),
    ],
)
def test_token_ids_that_are_none(ids: Any, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = _Model(monkeypatch)
    with pytest.raises(UsageError, match=message) as caught:
        model.llm.stream_ids(ids)
    assert caught.value.hint and model.started == []


@pytest.mark.parametrize("ids", [(0, 22), np.array([0, 22], np.uint16), [np.int64(0), 22], iter([0, 22])])
def test_whole_numbers_of_any_kind_are_token_ids(ids: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    model = _Model(monkeypatch)
    model.llm.stream_ids(ids)
    assert model.started == [[0, 22]]
    assert [type(token) for token in model.started[0]] == [int, int]


def test_a_bias_that_is_no_mapping() -> None:
    with pytest.raises(UsageError, match=r"logit_bias is \[1\]; expected a mapping"):
        SamplingParams(logit_bias=[1]).validate()  # type: ignore[arg-type]


def test_a_block_closes_its_model(monkeypatch: pytest.MonkeyPatch) -> None:
    llm, closed = toy_llm(), []
    monkeypatch.setattr(type(llm.runtime), "close", lambda runtime: closed.append(runtime), raising=False)
    with pytest.raises(KeyError), llm as same:
        assert same is llm and not closed
        raise KeyError
    assert closed == [llm.runtime]


def test_what_was_learnt_is_dropped_by_every_engine_that_drafts(monkeypatch: pytest.MonkeyPatch) -> None:
    """That of the loaded drafter, and that of drafters of single answers."""
    llm, dropped = toy_llm(), list[Engine]()
    monkeypatch.setattr(Engine, "reset_verification", lambda engine: dropped.append(engine))
    llm.reset_verification_params()
    assert len(set(dropped)) == 2 and llm.engine in dropped and llm.engine_of(False) not in dropped


def test_a_closed_model_says_so_and_may_be_closed_again() -> None:
    llm = toy_llm()
    chat = llm.chat()
    llm.close()
    llm.close()
    for ask in (lambda: llm.stream_ids([1]), lambda: chat.send("ab")):
        with pytest.raises(UsageError, match="this LLM is closed"):
            ask()


def test_parameters_of_another_kind_are_refused_with_the_right_one() -> None:
    with pytest.raises(UsageError, match=r"params are \{'max_tokens': 3\} \(dict\), expected SamplingParams"):
        toy_llm().stream_ids([1], {"max_tokens": 3})  # type: ignore[arg-type]
