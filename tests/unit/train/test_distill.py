"""Distilling: what is stored is what the model said and thought, whatever the batch, and no run loses finished work."""

from __future__ import annotations

import gzip
import json
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from fakes import EOS
from medusakit.artifact.schema import Backbone
from medusakit.errors import DatasetError, RuntimeFailure
from medusakit.runtimes.reference import ReferenceRuntime
from medusakit.runtimes.reference_source import ArraySource, random_source
from medusakit.train import answering
from medusakit.train.answers import write_answers
from medusakit.train.capture import capture
from medusakit.train.dataset import Dataset
from medusakit.train.distill import DistillConfig, distill
from medusakit.train.progress import Meter, Progress
from medusakit.train.shards import Sample
from medusakit.train.templates import Conversation
from medusakit.tree.topology import Tree
from train_fakes import ChatBytes

CONFIG = DistillConfig(rows=3, max_new_tokens=12, max_prompt_tokens=200, sampled_share=0.3, shard_tokens=40)


def source() -> ArraySource:
    """A random model that ends some answers early: the end token's row of the LM head is longer than others."""
    made = random_source(3, 258, context_length=600)
    made.arrays["lm_head"][EOS] *= 1.6
    return made


SOURCE = source()
BACKBONE = Backbone(name="tiny", fingerprint=SOURCE.fingerprint, hidden_size=16, vocab_size=258)
SEEDS = [Conversation((f"question {n} {'x' * (n % 5)}", *["and?", "why?"][: n % 3]), "own", "MIT") for n in range(14)]


def open_runtime(max_rows: int = 8) -> ReferenceRuntime:
    return ReferenceRuntime(SOURCE, max_rows=max_rows)


def run(out: Path, config: DistillConfig = CONFIG, seeds: list[Conversation] = SEEDS, **kwargs: object) -> Dataset:
    distill(open_runtime(), ChatBytes(), seeds, out, config, backbone=BACKBONE, **kwargs)  # type: ignore[arg-type]
    return Dataset([out])


def by_turn(data: Dataset) -> dict[tuple[int, int], Sample]:
    return {(sample.group, sample.turn): sample for sample in data}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return run(tmp_path_factory.mktemp("whole"))


def test_every_turn_of_every_seed_is_answered_once(whole: Dataset) -> None:
    assert len(whole) == sum(len(seed.turns) for seed in SEEDS) == len(by_turn(whole))
    lengths = [sample.num_generated for sample in whole]
    ended = [int(sample.gen[-1]) == EOS for sample in whole]
    assert max(lengths) == 12 and min(lengths) < 12
    assert any(ended) and not all(ended)
    assert all(length == 12 or end for length, end in zip(lengths, ended, strict=True))
    assert not any(EOS in sample.gen[:-1] for sample in whole)


def test_hidden_states_are_those_that_chose_each_token(whole: Dataset) -> None:
    """Row j is the state at position P - 1 + j of a plain pass, and for greedy answers its best token is gen[j]."""
    runtime, greedy = open_runtime(), 0
    for sample in whole:
        row = runtime.add_row()
        states = runtime.hidden_states(row, sample.ids.tolist())
        np.testing.assert_allclose(
            sample.hidden, states[sample.prompt_len - 1 : len(sample.ids) - 1], rtol=2e-3, atol=2e-3
        )
        runtime.drop_row(row)
        best = (SOURCE.arrays["lm_head"] @ states[sample.prompt_len - 1 : -1].T).argmax(0)
        greedy += bool((best == sample.gen).all())
    assert 0.5 * len(whole) < greedy < len(whole)  # the others were sampled


def test_later_turns_continue_the_models_own_answer(whole: Dataset) -> None:
    turns = by_turn(whole)
    later = [sample for sample in whole if sample.turn > 0]
    assert len(later) > 5
    for sample in later:
        before = turns[sample.group, sample.turn - 1]
        said = [token for token in before.gen.tolist() if token != EOS]
        text = ChatBytes().decode(said)
        prompt = ChatBytes().decode(sample.ids[: sample.prompt_len].tolist())
        follow = ["and?", "why?"][sample.turn - 1]
        assert prompt.endswith(f"<assistant>{text}<user>{follow}<assistant>")
        assert prompt.startswith(ChatBytes().decode(before.ids[: before.prompt_len].tolist()))


@pytest.mark.parametrize("rows", [1, 2, 7, 100])
def test_the_batch_does_not_change_the_answers(whole: Dataset, tmp_path: Path, rows: int) -> None:
    other = by_turn(run(tmp_path, CONFIG.model_copy(update={"rows": rows, "shard_tokens": 10_000})))
    for key, sample in by_turn(whole).items():
        np.testing.assert_array_equal(other[key].ids, sample.ids)
        np.testing.assert_allclose(other[key].hidden, sample.hidden, atol=2e-3)


def test_rows_never_wait_for_the_longest_answer(tmp_path: Path) -> None:
    """With prompts enough, every pass runs all rows; a padded batch would run many more passes."""
    runtime = open_runtime()
    passes: list[int] = []
    real: Callable[..., object] = runtime.forward

    def counting(trees: list[tuple[int, Tree]]) -> object:
        passes.append(len(trees))
        return real(trees)

    runtime.forward = counting  # type: ignore[method-assign, assignment]
    distill(runtime, ChatBytes(), SEEDS, tmp_path, CONFIG, backbone=BACKBONE)
    first_idle = next(i for i, rows in enumerate(passes) if rows < 3)
    assert all(rows == 3 for rows in passes[:first_idle]) and len(passes) - first_idle <= 3 * 12
    assert runtime.rows == ()


def test_a_common_beginning_is_computed_once(tmp_path: Path) -> None:
    runtime = open_runtime()
    prefilled: list[int] = []
    real = runtime.prefill

    def counting(row: int, ids: list[int]) -> object:
        prefilled.append(len(ids))
        return real(row, ids)

    runtime.prefill = counting  # type: ignore[method-assign, assignment]
    long = "please answer this in the usual way: "
    seeds = [Conversation((f"{long}{n}", "go on"), "own", "MIT") for n in range(4)]
    config = CONFIG.model_copy(update={"rows": 1})
    distill(runtime, ChatBytes(), seeds, tmp_path, config, backbone=BACKBONE)
    assert max(prefilled[1:]) <= len("<user>go on<assistant>") + 3 * 12 + 1  # neither the prompt nor its answer again


def test_a_token_limit_stops_early_and_a_larger_one_goes_on(tmp_path: Path, whole: Dataset) -> None:
    small = run(tmp_path, CONFIG.model_copy(update={"max_tokens": 60}))
    assert 60 <= small.num_tokens < 60 + 3 * 36 + 12
    full = run(tmp_path, CONFIG.model_copy(update={"max_tokens": 100_000}))
    assert by_turn(full).keys() == by_turn(whole).keys()


def test_a_second_run_has_nothing_to_do(tmp_path: Path) -> None:
    run(tmp_path)
    before = {file.name: file.stat().st_mtime_ns for file in tmp_path.glob("shard-*")}
    report = distill(open_runtime(), ChatBytes(), SEEDS, tmp_path, CONFIG, backbone=BACKBONE)
    assert report.new_tokens == 0
    assert {file.name: file.stat().st_mtime_ns for file in tmp_path.glob("shard-*")} == before


def test_other_settings_are_refused(tmp_path: Path) -> None:
    run(tmp_path, seeds=SEEDS[:2])
    with pytest.raises(DatasetError, match="settings"):
        run(tmp_path, CONFIG.model_copy(update={"max_new_tokens": 13}))
    with pytest.raises(DatasetError, match="seed 0"):
        run(tmp_path, CONFIG.model_copy(update={"seed": 1}))


def interrupted_run(out: Path, how: str) -> subprocess.CompletedProcess[str]:
    """A run in its own process that is hit by a signal after 25 passes."""
    script = textwrap.dedent(f"""
        import os, signal, sys
        from pathlib import Path
        sys.path[:0] = {[str(Path(__file__).parent), str(Path(__file__).parents[2])]!r}
        import test_distill as t
        runtime, passes = t.open_runtime(), 0
        real = runtime.forward
        def forward(trees):
            global passes
            passes += 1
            if passes == 25:
                os.kill(os.getpid(), signal.{how})
            return real(trees)
        runtime.forward = forward
        t.distill(runtime, t.ChatBytes(), t.SEEDS, Path({str(out)!r}), t.CONFIG, backbone=t.BACKBONE)
    """)
    return subprocess.run([sys.executable, "-c", script], check=False, capture_output=True, text=True)


@pytest.mark.parametrize("how", ["SIGKILL", "SIGINT"])
def test_a_run_that_was_cut_goes_on_to_the_same_set(tmp_path: Path, whole: Dataset, how: str) -> None:
    done = interrupted_run(tmp_path, how)
    assert done.returncode == -getattr(signal, how) or "KeyboardInterrupt" in done.stderr, done.stderr
    kept = by_turn(Dataset([tmp_path]))
    assert 0 < len(kept) < len(whole)
    after = by_turn(run(tmp_path))
    assert after.keys() == by_turn(whole).keys()
    for key, sample in by_turn(whole).items():
        np.testing.assert_array_equal(after[key].ids, sample.ids)


def test_ctrl_c_saves_answers_that_no_shard_was_full_of(tmp_path: Path) -> None:
    def press(progress: Progress) -> None:
        if progress.done >= 5:
            os.kill(os.getpid(), signal.SIGINT)

    config = CONFIG.model_copy(update={"shard_tokens": 100_000})
    with pytest.MonkeyPatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr("medusakit.train.distill.Meter", partial(Meter, every_s=0.0))
        run(tmp_path, config, on_progress=press)
    assert 5 <= len(Dataset([tmp_path])) < len(SEEDS)
    assert len(list(tmp_path.glob("shard-*"))) == 1


def test_ctrl_c_does_not_wait_until_every_row_has_its_prompt(tmp_path: Path) -> None:
    runtime, prompts = open_runtime(), []
    real = runtime.prefill

    def prefill(row: int, ids: list[int]) -> object:
        prompts.append(len(ids))
        signal.raise_signal(signal.SIGINT)
        return real(row, ids)

    runtime.prefill = prefill  # type: ignore[method-assign,assignment]
    with pytest.raises(KeyboardInterrupt):
        distill(runtime, ChatBytes(), SEEDS, tmp_path, CONFIG, backbone=BACKBONE)
    assert len(prompts) == 1 < CONFIG.rows


def test_ctrl_c_does_not_wait_while_finished_answers_are_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(tmp_path)
    rendered = []

    def conversation_ids(*args: object) -> list[int]:
        rendered.append(args)
        signal.raise_signal(signal.SIGINT)
        return real(*args)  # type: ignore[arg-type]

    real = answering.conversation_ids
    monkeypatch.setattr(answering, "conversation_ids", conversation_ids)
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path)
    assert len(rendered) == 1


def test_no_disk_space_in_the_middle_keeps_finished_shards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, whole: Dataset
) -> None:
    from medusakit.artifact import files

    real = files._write_synced

    def full(path: Path, data: bytes) -> None:
        if path.name.startswith(".shard-00002"):
            raise OSError(28, "No space left on device")
        real(path, data)

    monkeypatch.setattr(files, "_write_synced", full)
    with pytest.raises(RuntimeFailure, match="no space left while writing .*shard-00002"):
        run(tmp_path)
    monkeypatch.undo()
    assert len(Dataset([tmp_path]).shards) == 2
    assert by_turn(run(tmp_path)).keys() == by_turn(whole).keys()


def test_long_prompts_are_skipped_and_counted(tmp_path: Path) -> None:
    seeds = [Conversation(("y" * 190,), "own", "MIT"), Conversation(("short",), "own", "MIT")]
    notes: list[str] = []
    report = distill(
        open_runtime(), ChatBytes(), seeds, tmp_path, CONFIG, backbone=BACKBONE,
        on_progress=lambda p: notes.append(p.note) if p.finished else None,
    )  # fmt: skip
    assert (report.skipped, report.num_samples) == (1, 1)
    assert "1 prompts were too long" in notes[-1] and "too little" in notes[-1]
    with pytest.raises(DatasetError, match="answered none"):
        run(tmp_path / "none", seeds=seeds[:1])


def test_progress_counts_up_to_the_total(tmp_path: Path) -> None:
    seen: list[Progress] = []
    run(tmp_path, on_progress=seen.append)
    assert seen[-1].finished and seen[-1].done == seen[-1].total == sum(len(seed.turns) for seed in SEEDS)
    assert [p.done for p in seen] == sorted(p.done for p in seen)


@pytest.mark.parametrize("max_tokens", [0, 100])
def test_progress_counts_tokens_while_answers_are_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, max_tokens: int
) -> None:
    """Before the first answer has ended."""
    monkeypatch.setattr("medusakit.train.distill.Meter", partial(Meter, every_s=0.0))
    seen: list[Progress] = []
    run(tmp_path, CONFIG.model_copy(update={"max_tokens": max_tokens}), seeds=SEEDS[:3], on_progress=seen.append)
    early = [progress for progress in seen if progress.note.startswith("0 answers, ")]
    assert len(early) >= 4
    assert not any("0 answers, 0 tokens/s" in progress.note for progress in early)
    counted = [progress.done for progress in early]
    assert counted == sorted(set(counted)) if max_tokens else set(counted) == {0}


def test_capture_gives_the_states_that_distilling_stored(tmp_path: Path, whole: Dataset) -> None:
    first = [sample for sample in whole if sample.turn == 0]
    with gzip.open(tmp_path / "answers.jsonl.gz", "wt") as file:
        for sample in first:
            prompt = sample.ids[: sample.prompt_len].tolist()
            file.write(
                json.dumps({"prompt": prompt, "gen": sample.gen.tolist(), "source": "x", "license": "MIT"}) + "\n"
            )
    for _ in range(2):  # the second time there is nothing to do
        capture(open_runtime(), ChatBytes(), tmp_path / "answers.jsonl.gz", tmp_path / "set", backbone=BACKBONE,
                shard_tokens=50)  # fmt: skip
    found = by_turn(Dataset([tmp_path / "set"]))
    assert len(found) == len(first)
    for sample in first:
        np.testing.assert_array_equal(found[sample.group, 0].ids, sample.ids)
        np.testing.assert_allclose(found[sample.group, 0].hidden, sample.hidden, atol=2e-3)


def test_a_distilled_set_survives_as_a_file_of_answers(tmp_path: Path, whole: Dataset) -> None:
    """Every turn with its conversation, its prompt and its states, but for conversations that are not asked for."""
    (tmp_path / "seeds.jsonl").write_text("".join(json.dumps({"turns": seed.turns}) + "\n" for seed in SEEDS[1:]))
    num = write_answers(whole, tmp_path / "seeds.jsonl", ChatBytes(), tmp_path / "a.jsonl.gz")
    capture(open_runtime(), ChatBytes(), tmp_path / "a.jsonl.gz", tmp_path / "set", backbone=BACKBONE)
    expected, found = by_turn(whole), by_turn(Dataset([tmp_path / "set"]))
    assert num == len(SEEDS) - 1 == len({group for group, _ in found})
    assert found.keys() < expected.keys() and max(turn for _, turn in found) == 2
    for key, sample in found.items():
        np.testing.assert_array_equal(sample.ids, expected[key].ids)
        assert sample.prompt_len == expected[key].prompt_len
        np.testing.assert_allclose(sample.hidden, expected[key].hidden, atol=2e-3)


def test_capture_renders_a_text_prompt_like_distilling(tmp_path: Path, whole: Dataset) -> None:
    sample = next(s for s in whole if s.turn == 0)
    text = ChatBytes().decode(sample.ids[: sample.prompt_len].tolist())[len("<user>") : -len("<assistant>")]
    (tmp_path / "a.jsonl").write_text(json.dumps({"prompt": text, "gen": sample.gen.tolist()}) + "\n")
    capture(open_runtime(), ChatBytes(), tmp_path / "a.jsonl", tmp_path / "set", backbone=BACKBONE)
    assert next(iter(Dataset([tmp_path / "set"]))).group == sample.group


@pytest.mark.parametrize(
    "entry",
    [
        {"prompt": [1, 2]},
        {"prompt": [1], "gen": [999]},
        {"prompt": [1], "gen": [True]},
        {"prompt": [], "gen": [1]},
        {"gen": [1]},
        {"turns": ["a", "b"], "gens": [[1]]},
        {"turns": ["a"], "gens": [[]]},
        {"turns": "a", "gens": [[1]]},
    ],
)
def test_capture_names_a_bad_line(tmp_path: Path, entry: dict[str, object]) -> None:
    (tmp_path / "a.jsonl").write_text(json.dumps({"prompt": [1], "gen": [2]}) + "\n" + json.dumps(entry) + "\n")
    with pytest.raises(DatasetError, match="line 2: .*expected"):
        capture(open_runtime(), ChatBytes(), tmp_path / "a.jsonl", tmp_path / "set", backbone=BACKBONE)
    assert not (tmp_path / "set").exists()


def test_answers_that_end_beyond_the_total_are_told_and_take_no_known_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("medusakit.train.distill.Meter", partial(Meter, every_s=0.0))
    seen: list[Progress] = []
    run(tmp_path, CONFIG.model_copy(update={"max_tokens": 5}), seeds=SEEDS[:3], on_progress=seen.append)
    beyond = [progress for progress in seen if progress.done >= 5 and not progress.finished]
    assert beyond
    assert all("that were begun are finished" in one.note and one.remaining_s is None for one in beyond)
