"""`medusa chat` with piped input: turns and slash commands."""

from __future__ import annotations

from cli_fakes import FakeLLM, Invoke


def test_each_line_is_a_turn_of_one_conversation(invoke: Invoke, llm: FakeLLM) -> None:
    outcome = invoke("chat", piped="first\n\nsecond\n")
    assert outcome.code == 0
    assert llm.chats[0].turns == ["first", "second"]
    assert outcome.out.count("one two three") == 2
    assert outcome.err.count("tau") == 2
    assert llm.chats[0].closed


def test_exit_ends_the_conversation(invoke: Invoke, llm: FakeLLM) -> None:
    invoke("chat", piped="first\n/exit\nsecond\n")
    assert llm.chats[0].turns == ["first"]


def test_several_lines_between_quotes_are_one_message(invoke: Invoke, llm: FakeLLM) -> None:
    invoke("chat", piped='"""\nline one\nline two\n"""\nnext\n')
    assert llm.chats[0].turns == ["line one\nline two", "next"]


def test_set_changes_the_next_turns(invoke: Invoke, llm: FakeLLM) -> None:
    invoke("chat", "--seed", "5", piped="a\n/set temperature 0.7\n/set speculation off\n/set accept typical\nb\n")
    first, second = llm.calls
    assert (first["params"].temperature, first["speculation"]) == (0.0, True)
    assert (second["params"].temperature, second["params"].acceptance, second["speculation"]) == (0.7, "typical", False)
    assert second["params"].seed == 5


def test_a_mistake_does_not_end_the_conversation(invoke: Invoke, llm: FakeLLM) -> None:
    outcome = invoke("chat", piped="/set temprature 1\n/set top_p 7\n/fly\nhello\n")
    assert "cannot set `temprature`" in outcome.err
    assert "/set temperature 1" in outcome.err
    assert "a number from 0 to 1" in outcome.err
    assert "no such command: /fly" in outcome.err
    assert llm.chats[0].turns == ["hello"]


def test_a_refused_value_leaves_the_old_one(invoke: Invoke, llm: FakeLLM) -> None:
    outcome = invoke("chat", piped="/set top_p 0\nhello\n")
    assert "top_p is 0.0" in outcome.err
    assert llm.calls[0]["params"].top_p == 1.0


def test_clear_help_and_stats(invoke: Invoke, llm: FakeLLM) -> None:
    outcome = invoke("chat", piped="/stats\nhello\n/stats\n/help\n/clear\n/set\n")
    assert "nothing has been answered yet" in outcome.err
    assert "tokens_per_s" in outcome.out
    assert "/clear" in outcome.out
    assert "max_tokens" in outcome.out
    assert llm.chats[0].cleared == 1
