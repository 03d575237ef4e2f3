"""`medusa train joint`: which stages run, with which recipe, and what is asked for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cli_fakes import Invoke
from medusakit.cli import joint


class FakePipeline:
    def __init__(self) -> None:
        self.ran: list[str] = []
        self.recipe: Any = None
        self.where: tuple[Path, Path] | None = None
        self.interrupted = ""

    def run(self, stage: str) -> dict[str, Any]:
        if stage == self.interrupted:
            raise KeyboardInterrupt
        self.ran.append(stage)
        return {"summary": stage}


@pytest.fixture
def pipeline(monkeypatch: pytest.MonkeyPatch) -> FakePipeline:
    fake = FakePipeline()

    def opened(app: Any, recipe: Any, work: Path, out: Path, on_progress: Any) -> FakePipeline:
        fake.recipe, fake.where = recipe, (work, out)
        return fake

    monkeypatch.setattr(joint, "open_pipeline", opened)
    return fake


def test_joint_trains_reports_and_says_what_comes_next(invoke: Invoke, pipeline: FakePipeline) -> None:
    outcome = invoke("train", "joint", "-m", "m.gguf", "--work", "w", "--out", "tuned", "--no-naive")
    assert outcome.code == 0
    assert pipeline.ran == ["joint", "quality"] and pipeline.where == (Path("w"), Path("tuned"))
    assert pipeline.recipe.model == "m.gguf" and not pipeline.recipe.joint.quality.naive
    assert "next: medusa run -m tuned" in outcome.out


def test_settings_come_from_the_recipe_and_the_report_can_be_left_out(
    invoke: Invoke, pipeline: FakePipeline, tmp_path: Path
) -> None:
    file = tmp_path / "r.toml"
    file.write_text('model = "n.gguf"\n[joint]\nlambda0 = 0.05\n[joint.quality]\nbudget = 8\n')
    assert invoke("train", "joint", "--recipe", str(file), "--work", "w", "--no-report").code == 0
    assert pipeline.ran == ["joint"]
    assert (pipeline.recipe.model, pipeline.recipe.joint.lambda0) == ("n.gguf", 0.05)
    assert pipeline.recipe.joint.quality.budget == 8 and pipeline.recipe.joint.quality.naive


def test_an_unknown_setting_of_the_table_is_named(invoke: Invoke, pipeline: FakePipeline, tmp_path: Path) -> None:
    file = tmp_path / "r.toml"
    file.write_text("[joint]\nlambda = 0.05\n")
    outcome = invoke("train", "joint", "--recipe", str(file), "--work", "w")
    assert outcome.code == 2 and "joint.lambda" in outcome.err and "lambda0" in outcome.err


def test_an_interrupt_says_that_it_was_saved(invoke: Invoke, pipeline: FakePipeline) -> None:
    pipeline.interrupted = "joint"
    outcome = invoke("train", "joint", "--work", "w")
    assert outcome.code == 130 and "saved; the same command goes on" in outcome.err
    assert pipeline.ran == []


def test_a_missing_package_is_named(invoke: Invoke, pipeline: FakePipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(joint, "find_spec", lambda name: None if name == "peft" else object())
    outcome = invoke("train", "joint", "--work", "w")
    assert outcome.code == 4 and "peft" in outcome.err and "medusakit[torch]" in outcome.err
