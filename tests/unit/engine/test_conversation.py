"""A conversation says what its messages alone would get, and runs only what is new of them."""

from __future__ import annotations

import pytest

from bench_fakes import toy_llm
from medusakit.errors import ContextLengthError
from medusakit.settings import SamplingParams

SHORT = SamplingParams(max_tokens=6)


@pytest.mark.parametrize("speculation", [True, False])
def test_a_turn_prefills_what_its_row_lacks(speculation: bool) -> None:
    llm, alone = toy_llm(), toy_llm()
    chat = llm.chat("ab", SHORT)
    for number, text in enumerate(("cde", "fg")):
        with chat.send(text, speculation=speculation) as turn:
            said = [event.token_id for event in turn]
        wanted = alone.generate(chat.messages[:-1], SHORT)
        assert (said, turn.result.text) == (list(wanted.token_ids), chat.messages[-1]["content"])
        assert (turn.result.stats.num_reused_tokens > 0) == (number > 0)
    assert [message["role"] for message in chat.messages] == ["system", "user", "assistant", "user", "assistant"]


def test_a_turn_that_is_left_early_is_part_of_the_conversation() -> None:
    chat = toy_llm().chat(params=SHORT)
    with chat.send("abc") as turn:
        event = next(turn)
    assert chat.messages[-1] == {"role": "assistant", "content": event.text}


def test_a_conversation_that_is_forgotten_gives_its_row_back() -> None:
    llm = toy_llm()
    chat = llm.chat("ab", SHORT)
    chat.send("cde").close()
    assert len(llm.runtime.rows) == 1
    chat.clear()
    assert llm.runtime.rows == () and chat.messages == [{"role": "system", "content": "ab"}]


def test_a_message_that_does_not_fit_is_as_if_never_said() -> None:
    llm = toy_llm(max_context=32)
    chat = llm.chat(params=SHORT)
    chat.send("abc").close()
    before = list(chat.messages)
    with pytest.raises(ContextLengthError):
        chat.send("d" * 40)
    assert chat.messages == before and llm.runtime.rows == ()
    with chat.send("d") as turn:
        assert next(turn).step == 0
