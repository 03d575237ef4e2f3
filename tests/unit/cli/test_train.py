"""`medusa train`: which stages run, with which recipe, and what a person sees."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from cli_fakes import Invoke
from medusakit.cli import train
from medusakit.train.progress import Progress


@dataclass
class FakePipeline:
    """Notes the stages; `interrupted` is pressed in that stage."""

    recipe: Any = None
    where: Any = None
    on_progress: Any = None
    ran: list[str] = field(default_factory=list)
    interrupted: str = ""

    def run(self, stage: str) -> dict[str, Any]:
        if stage == self.interrupted:
            raise KeyboardInterrupt
        self.ran.append(stage)
        self.on_progress(Progress(stage, 3, 3, note=f"expectation of {stage}", finished=True))
        return {"summary": stage}


@pytest.fixture
def pipeline(monkeypatch: pytest.MonkeyPatch) -> FakePipeline:
    fake = FakePipeline()

    def opened(app: Any, recipe: Any, where: Any, on_progress: Any) -> FakePipeline:
        fake.recipe, fake.where, fake.on_progress = recipe, where, on_progress
        return fake

    monkeypatch.setattr(train, "open_pipeline", opened)
    return fake


def test_all_runs_every_stage_in_order_and_says_what_comes_next(invoke: Invoke, pipeline: FakePipeline) -> None:
    outcome = invoke("train", "all", "-m", "m.gguf", "--out", "mine")
    assert outcome.code == 0
    assert pipeline.ran == ["seeds", "distill", "capture", "heads", "calibrate", "tree", "artifact"]
    assert "expectation of heads" in outcome.out
    assert "next: medusa compare -m m.gguf --heads mine" in outcome.out


@pytest.mark.parametrize("stage", ["seeds", "distill", "capture", "heads", "calibrate"])
def test_one_stage(invoke: Invoke, pipeline: FakePipeline, stage: str) -> None:
    assert invoke("train", stage).code == 0
    assert pipeline.ran == [stage]


def test_tree_writes_the_heads_folder(invoke: Invoke, pipeline: FakePipeline) -> None:
    invoke("train", "tree")
    assert pipeline.ran == ["tree", "artifact"]


def test_flags_change_the_recipe(invoke: Invoke, pipeline: FakePipeline) -> None:
    invoke("train", "heads", "--family", "medusa", "--tokens", "5000", "--epochs", "0.5")
    recipe = pipeline.recipe
    assert (recipe.heads.family, recipe.heads.epochs, recipe.distill.max_tokens) == ("medusa", 0.5, 5000)
    assert recipe.model == "smollm2"


def test_a_recipe_file_is_kept_where_no_flag_says_otherwise(
    invoke: Invoke, pipeline: FakePipeline, tmp_path: Path
) -> None:
    file = tmp_path / "recipe.toml"
    file.write_text('model = "other.gguf"\n[heads]\nfamily = "medusa"\nepochs = 3.0\n')
    invoke("train", "heads", "--recipe", str(file))
    assert (pipeline.recipe.model, pipeline.recipe.heads.family) == ("other.gguf", "medusa")
    invoke("train", "heads", "--recipe", str(file), "-m", "mine.gguf", "--family", "hydra")
    assert (pipeline.recipe.model, pipeline.recipe.heads.family) == ("mine.gguf", "hydra")
    assert pipeline.recipe.heads.epochs == 3.0


def test_a_misspelt_recipe_key_exits_with_2(invoke: Invoke, tmp_path: Path) -> None:
    file = tmp_path / "recipe.toml"
    file.write_text("[heads]\nepoch = 3.0\n")
    outcome = invoke("train", "heads", "--recipe", str(file))
    assert outcome.code == 2
    assert "did you mean epochs?" in outcome.err


def test_ctrl_c_says_that_nothing_is_lost(invoke: Invoke, pipeline: FakePipeline) -> None:
    pipeline.interrupted = "distill"
    outcome = invoke("train", "all")
    assert outcome.code == 130
    assert pipeline.ran == ["seeds"]
    assert "the same command goes on from here" in outcome.err


def test_json_holds_results_and_recipe(invoke: Invoke, pipeline: FakePipeline, tmp_path: Path) -> None:
    target = tmp_path / "out.json"
    invoke("train", "seeds", "--json", str(target))
    document = json.loads(target.read_text())
    assert document["stages"] == {"seeds": {"summary": "seeds"}}
    assert document["recipe"]["heads"]["family"] == "hydra"


def test_without_torch_the_pip_command_is_named(
    invoke: Invoke, pipeline: FakePipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    outcome = invoke("train", "heads")
    assert outcome.code == 4
    assert "pip install 'medusakit[train]'" in outcome.err
    assert invoke("train", "seeds").code == 0


def test_answers_are_written_from_the_work_folder(
    invoke: Invoke, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    seen: list[Any] = []
    monkeypatch.setattr("medusakit.models.resolve.resolve", lambda name, **_: name)
    monkeypatch.setattr("medusakit.text.tokenizer.load_tokenizer", lambda model: f"tokenizer of {model}")
    monkeypatch.setattr("medusakit.train.dataset.Dataset", lambda folders: folders)
    monkeypatch.setattr("medusakit.train.answers.write_answers", lambda *given: seen.extend(given) or 1234)
    outcome = invoke("train", "answers", "-m", "m.gguf", "--work", "w", "out.jsonl.gz")
    assert outcome.code == 0 and "1,234 conversations written to out.jsonl.gz" in outcome.out
    assert seen == [[Path("w/distill")], Path("w/seeds.jsonl"), "tokenizer of m.gguf", Path("out.jsonl.gz")]


def test_a_server_that_answers(invoke: Invoke, pipeline: FakePipeline) -> None:
    assert (
        invoke("train", "distill", "--endpoint", "http://h:1", "--endpoint-model", "m", "--api-key-env", "K").code == 0
    )
    server = pipeline.recipe.endpoint
    assert (server.url, server.model, server.api_key_env, server.concurrency) == ("http://h:1", "m", "K", 16)
    assert invoke("train", "heads").code == 0
    assert pipeline.recipe.endpoint is None


def test_help_tells_what_a_run_without_a_recipe_makes() -> None:
    from medusakit.train.recipe import Recipe

    recipe = Recipe()
    assert f"{recipe.distill.max_tokens:,} without" in train._TOKENS
    assert f"{recipe.heads.epochs:g} without" in train._EPOCHS
