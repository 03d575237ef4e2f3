"""`medusa run`: prompt sources, output streams, figures, interrupts, JSON."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from cli_fakes import FakeLLM, Invoke
from medusakit.cli import footer
from medusakit.engine.events import GenerationStats
from medusakit.tree.cost import StepCost

ANSWER = "one two three four five six seven"


def test_answer_on_stdout_and_one_line_of_figures_on_stderr(invoke: Invoke, llm: FakeLLM) -> None:
    outcome = invoke("run", "hello")
    assert outcome.code == 0
    assert outcome.out == ANSWER + "\n"
    assert outcome.err.strip().splitlines() == [outcome.err.strip()]
    figures = "7 tok · first 0.10 s, then 12.0 tok/s · tau 3.00 tok/step · depth 80/40%"
    assert figures in outcome.err


def test_no_figure_of_plain_decoding_which_was_not_measured(invoke: Invoke, llm: FakeLLM) -> None:
    """T(1) is known at load, but from another time: on a busy machine a ratio to it would be wrong."""
    llm.cost = StepCost.single({1: 0.125})
    assert "plain" not in invoke("run", "hello").err
    assert "tok/s · plain" in invoke("run", "hello", "--no-speculation").err


def test_an_answer_of_one_token_has_no_speed(invoke: Invoke, llm: FakeLLM) -> None:
    assert "1 tok · first 0.10 s ·" in invoke("run", "hello", "-n", "1").err


def test_quiet_leaves_only_the_answer(invoke: Invoke, llm: FakeLLM) -> None:
    outcome = invoke("run", "hello", "--quiet")
    assert (outcome.out, outcome.err) == (ANSWER + "\n", "")


def test_run_is_the_default_command(invoke: Invoke, llm: FakeLLM) -> None:
    assert invoke("hello there").out == ANSWER + "\n"
    assert invoke("-n", "2", "hello").out == "one two\n"
    assert invoke("-q", "hello").err == ""
    assert [call["prompt"] for call in llm.calls] == ["hello there", "hello", "hello"]


def test_a_misspelt_command_is_not_taken_for_a_prompt(invoke: Invoke, llm: FakeLLM) -> None:
    outcome = invoke("chta")
    assert outcome.code == 2
    assert "did you mean chat?" in outcome.err
    assert not llm.calls


@pytest.mark.parametrize(
    ("words", "piped", "prompt"),
    [
        (["run", "explain"], "", "explain"),
        (["run"], "from a pipe\n", "from a pipe"),
        (["run", "-"], "from a pipe\n", "from a pipe"),
        (["run", "explain"], "some text\n", "explain\n\nsome text"),
        ([], "from a pipe", "from a pipe"),
    ],
)
def test_prompt_from_argument_and_pipe(invoke: Invoke, llm: FakeLLM, words: list[str], piped: str, prompt: str) -> None:
    assert invoke(*words, piped=piped).code == 0
    assert llm.calls[0]["prompt"] == prompt


@pytest.mark.parametrize("words", [["run"], ["run", ""], ["run", "  \n"], []])
def test_an_empty_prompt_is_a_usage_error(invoke: Invoke, llm: FakeLLM, words: list[str]) -> None:
    outcome = invoke(*words)
    assert outcome.code == 2
    assert "the prompt is empty" in outcome.err
    assert "try: medusa run" in outcome.err
    assert not llm.calls


def test_flags_reach_the_request(invoke: Invoke, llm: FakeLLM) -> None:
    words = "--temperature 0.8 --top-p 0.9 --top-k 40 --min-p 0.05 --seed 3 --stop END --stop FIN -n 9"
    invoke("run", "x", *words.split(), "--accept", "typical", "--no-speculation", "--raw")
    call = llm.calls[0]
    params = call["params"]
    assert (params.temperature, params.top_p, params.top_k, params.min_p) == (0.8, 0.9, 40, 0.05)
    assert (params.seed, params.stop, params.max_tokens) == (3, ("END", "FIN"), 9)
    assert (params.acceptance, call["speculation"], call["raw"]) == ("typical", False, True)


def test_system_message_becomes_a_message(invoke: Invoke, llm: FakeLLM) -> None:
    invoke("run", "x", "-s", "be brief")
    assert llm.calls[0]["prompt"] == [
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": "x"},
    ]
    assert invoke("run", "x", "-s", "be brief", "--raw").code == 2


def test_lossy_answers_are_labelled(invoke: Invoke, llm: FakeLLM) -> None:
    assert "lossy: typical acceptance" in invoke("run", "x", "--accept", "typical").err
    assert "lossy: dynamic acceptance" in invoke("run", "x", "--accept", "dynamic").err
    assert "lossy" not in invoke("run", "x").err


def test_ctrl_c_keeps_the_answer_so_far(invoke: Invoke, llm: FakeLLM) -> None:
    llm.press = lambda: os.kill(os.getpid(), signal.SIGINT)
    before = signal.getsignal(signal.SIGINT)
    outcome = invoke("run", "x")
    assert outcome.code == 130
    assert outcome.out in ("one two\n", "one two three\n")
    assert "stopped" in outcome.err
    assert signal.getsignal(signal.SIGINT) is before


def test_no_stream_gives_the_same_text(invoke: Invoke, llm: FakeLLM) -> None:
    assert invoke("run", "x", "--no-stream").out == ANSWER + "\n"


def read(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def test_json_file_holds_the_generation_and_how_it_was_made(invoke: Invoke, llm: FakeLLM, tmp_path: Path) -> None:
    target = tmp_path / "out.json"
    assert invoke("run", "x", "--json", str(target)).out == ANSWER + "\n"
    document = read(target)
    assert document["text"] == ANSWER
    assert document["stats"]["tau"] == 3.0
    assert document["tokens"][1] == {
        "token_id": 101, "text": " two", "from_draft": True, "depth": 1, "node": 1, "step": 1, "logprob": -0.5,
        "top": [],
    }  # fmt: skip
    assert document["config"]["max_tokens"] == 512
    assert {"model", "versions", "machine", "seed", "lossless"} <= set(document)


def test_json_to_stdout_is_the_whole_output(invoke: Invoke, llm: FakeLLM) -> None:
    assert json.loads(invoke("run", "x", "--json", "-").out)["text"] == ANSWER


@pytest.mark.parametrize("place", ["missing/out.json", "."])
def test_json_to_a_place_that_cannot_be_written_is_refused_before_the_work(
    invoke: Invoke, llm: FakeLLM, tmp_path: Path, place: str
) -> None:
    outcome = invoke("run", "x", "--json", str(tmp_path / place))
    assert outcome.code == 4 and outcome.out == ""
    assert f"cannot write {tmp_path / place}" in outcome.err and "--json -" in outcome.err


def test_json_is_written_whole_or_not_at_all(
    invoke: Invoke, llm: FakeLLM, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "out.json"
    target.write_text("earlier")
    monkeypatch.setattr("medusakit.artifact.files.os.fsync", lambda descriptor: (_ for _ in ()).throw(OSError(28, "")))
    assert invoke("run", "x", "--json", str(target)).code == 4
    assert target.read_text() == "earlier" and list(tmp_path.glob("*.json*")) == [target]


def test_the_footer_ends_its_depths_where_they_say_little() -> None:
    stats = GenerationStats(num_tokens=9, num_steps=4, offered_by_depth=[4] * 9, accepted_by_depth=[2] + [1] * 8)
    assert footer._speculation(stats).endswith("depth 50/25/25/25/25/…%")


@pytest.mark.parametrize(("text", "told"), [("{", "holds no JSON"), ("[1]", "which is an object")])
def test_a_schema_file_that_holds_none(invoke: Invoke, llm: FakeLLM, tmp_path: Path, text: str, told: str) -> None:
    file = tmp_path / "schema.json"
    file.write_text(text)
    outcome = invoke("run", "hello", "--json-schema", str(file))
    assert (outcome.code, llm.calls) == (2, [])
    assert told in " ".join(outcome.err.split())
