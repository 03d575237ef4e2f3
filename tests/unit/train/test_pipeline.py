"""The whole pipeline on a random tiny model: it ends in heads that load, and goes on from where it stopped."""

from __future__ import annotations

import json
import signal
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from fakes import EOS
from medusakit.artifact.io import check_fits, load_artifact
from medusakit.drafters.registry import load_drafter
from medusakit.errors import DatasetError
from medusakit.runtimes.base import Runtime
from medusakit.runtimes.reference import ReferenceRuntime
from medusakit.runtimes.reference_source import ArraySource, random_source
from medusakit.train import drafting, pipeline
from medusakit.train.dataset import Dataset
from medusakit.train.distill import DistillConfig
from medusakit.train.endpoint_answers import EndpointConfig
from medusakit.train.heads_config import HeadsConfig
from medusakit.train.leakage import BenchmarkTexts
from medusakit.train.pipeline import STAGES, Pipeline, train_all
from medusakit.train.place import OpenModel
from medusakit.train.progress import Progress
from medusakit.train.recipe import Recipe
from medusakit.train.seeds import SeedConfig
from medusakit.tree.cost import StepCost
from server_fakes import listening, scripted, service_of
from train_fakes import ChatBytes

SOURCE: ArraySource = random_source(5, 258, hidden_size=32, num_layers=1, context_length=512)


pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No benchmark index, no second-long measuring, a cache of its own."""
    monkeypatch.setenv("MEDUSA_HOME", str(tmp_path / "home"))
    monkeypatch.setattr("medusakit.train.seeds.spec_bench_texts", lambda: BenchmarkTexts([]))
    cost = StepCost.single({1: 1.0, 2: 1.0, 4: 1.1, 8: 1.3, 64: 4.0})
    monkeypatch.setattr(drafting, "remembered_cost", lambda *a: cost)


@dataclass
class Watch:
    """Collects the lines at the end of stages, and counts how often the model is opened."""

    notes: list[tuple[str, str]] = field(default_factory=list)
    opened: Counter[int] = field(default_factory=Counter)

    def __call__(self, progress: Progress) -> None:
        if progress.finished:
            self.notes.append((progress.stage, progress.note))

    def runtime(self, rows: int) -> Runtime:
        self.opened[rows] += 1
        return ReferenceRuntime(SOURCE, max_rows=rows)

    def model(self) -> OpenModel:
        return OpenModel(SOURCE, ChatBytes(), self.runtime, threads=1)  # type: ignore[arg-type]

    def of(self, stage: str) -> str:
        return " | ".join(note for name, note in self.notes if name.startswith(stage))


def recipe(tmp_path: Path, **heads: object) -> Recipe:
    answers = tmp_path / "answers.jsonl"
    if not answers.exists():
        answers.write_text(
            json.dumps({"prompt": "hi", "gen": [72, 105, EOS], "source": "mine", "license": "MIT"}) + "\n"
        )
    settings = {
        "family": "medusa",
        "depth": 2,
        "draft_vocab": 0,
        "epochs": 1,
        "batch_rows": 64,
        "held_out": 0.3,
        "averaging": 0.0,
        "dropout": 0.0,
        "warmup_steps": 2,
        **heads,
    }
    return Recipe(
        capture=(str(answers),),
        seeds=SeedConfig(templates=12, turn_shares=(0.5,), max_chars=150),
        distill=DistillConfig(rows=4, max_new_tokens=10, max_prompt_tokens=300, shard_tokens=60),
        heads=HeadsConfig.model_validate({**settings, **heads}),
        tree_nodes=7,
    )


def run(tmp_path: Path, made: Recipe, watch: Watch) -> None:
    train_all(made, watch.model(), tmp_path / "work", tmp_path / "heads", on_progress=watch)


@pytest.mark.parametrize("family", ["medusa", "hydra", "context", "cnn_lstm", "ssm"])
def test_seeds_to_artifact(tmp_path: Path, family: str) -> None:
    watch = Watch()
    run(tmp_path, recipe(tmp_path, family=family, epochs=20, learning_rate=0.02), watch)
    artifact = load_artifact(tmp_path / "heads")
    check_fits(artifact, SOURCE, tokenizer_hash=ChatBytes.hash)
    assert load_drafter(artifact, SOURCE, threads=1).max_depth == 2
    assert 0 < len(artifact.tree.nodes) <= 7 and artifact.tree.num_positions > 0
    made = artifact.manifest.provenance
    assert made.train_tokens > 0
    assert made.recipe["licenses"] == {"medusakit templates": "Apache-2.0", "mine": "MIT"}
    assert made.recipe["settings"]["capture"] == ["answers.jsonl"] and str(tmp_path) not in json.dumps(made.recipe)
    assert len(made.metrics["top1_by_depth"]) == 2 and "worth serving" in made.metrics["verdict"]
    for stage in ("seeds", "distill", "capture", "heads", "calibrate", "tree", "artifact"):
        assert watch.of(stage), f"{stage} ended without a line"
    assert watch.of("heads").startswith("top-1") and "|" not in watch.of(
        "heads"
    )  # opened again later, which is no news
    assert "top-1 at depth 1" in watch.of("calibrate")
    assert watch.of("artifact").endswith(f"-m {Recipe().model}")


def test_a_finished_pipeline_does_nothing(tmp_path: Path) -> None:
    run(tmp_path, recipe(tmp_path), Watch())
    before = {p: p.stat().st_mtime_ns for p in tmp_path.rglob("*") if p.is_file()}
    watch = Watch()
    run(tmp_path, recipe(tmp_path), watch)
    assert not watch.opened
    assert {p: p.stat().st_mtime_ns for p in tmp_path.rglob("*") if p.is_file()} == before
    assert all("already done" in watch.of(stage) for stage in STAGES)


def test_changed_settings_redo_only_what_depends_on_them(tmp_path: Path) -> None:
    run(tmp_path, recipe(tmp_path), Watch())
    watch = Watch()
    run(tmp_path, recipe(tmp_path, learning_rate=0.01), watch)
    assert "already done" in watch.of("distill") and "already done" in watch.of("capture")
    assert "made again: learning_rate 0.002 -> 0.01" in watch.of("heads medusa")
    for stage in ("calibrate", "tree", "artifact"):
        assert "made again" in watch.of(f"{stage} medusa")
    settings = load_artifact(tmp_path / "heads").manifest.provenance.recipe["settings"]
    assert settings["heads"]["learning_rate"] == 0.01


def test_answers_of_other_settings_are_kept_aside(tmp_path: Path) -> None:
    run(tmp_path, recipe(tmp_path), Watch())
    made = recipe(tmp_path)
    other = made.model_copy(update={"distill": made.distill.model_copy(update={"max_new_tokens": 6})})
    watch = Watch()
    run(tmp_path, other, watch)
    assert "max_new_tokens 10 -> 6" in watch.of("distill") and "are kept in" in watch.of("distill")
    assert list((tmp_path / "work/distill.old-0").glob("shard-*"))


class Stopped(BaseException):
    """A kill: nothing catches it, nothing is tidied up by a handler."""


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("point", ["distill", "capture", "train_heads", "measure_ranks", "save_artifact"])
def test_it_goes_on_after_a_kill_at_any_stage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, point: str, when: str
) -> None:
    module = pipeline if point in ("distill", "capture") else drafting
    real: Callable[..., object] = getattr(module, point)

    def killed(*args: object, **kwargs: object) -> object:
        if when == "after":
            real(*args, **kwargs)
        raise Stopped

    with monkeypatch.context() as patch, pytest.raises(Stopped):
        patch.setattr(module, point, killed)
        run(tmp_path, recipe(tmp_path), Watch())
    watch = Watch()
    run(tmp_path, recipe(tmp_path), watch)
    assert load_artifact(tmp_path / "heads").manifest.drafter.family == "medusa"
    assert "already done" in watch.of("seeds")
    assert point == "distill" or "already done" in watch.of("distill")


@pytest.mark.parametrize("last", [False, True], ids=["first", "last"])
@pytest.mark.parametrize("stage", ["distill", "capture", "heads medusa", "calibrate", "tree"])
def test_ctrl_c_ends_the_stage_that_it_meets(tmp_path: Path, stage: str, last: bool) -> None:
    """Pressed at a stage's first or last report: no other stage begins, and the same call goes on from there."""
    seen: list[str] = []

    def press(progress: Progress) -> None:
        seen.append(progress.stage)
        if progress.stage == stage and progress.finished >= last and seen.count("pressed") == 0:
            seen.append("pressed")
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        train_all(recipe(tmp_path), Watch().model(), tmp_path / "work", tmp_path / "heads", on_progress=press)
    assert seen[-1] in ("pressed", stage), f"{seen[-1]} began after Ctrl-C"
    assert not (tmp_path / "heads").exists()
    run(tmp_path, recipe(tmp_path), Watch())
    assert load_artifact(tmp_path / "heads").manifest.drafter.family == "medusa"


def test_a_kill_in_training_and_then_other_settings_starts_training_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = drafting.train_heads

    def killed(*args: object, **kwargs: object) -> object:
        real(*args, **kwargs)  # type: ignore[arg-type]
        raise Stopped

    with monkeypatch.context() as patch, pytest.raises(Stopped):
        patch.setattr(drafting, "train_heads", killed)
        run(tmp_path, recipe(tmp_path), Watch())
    watch = Watch()
    run(tmp_path, recipe(tmp_path, epochs=2), watch)
    assert "training starts again" in watch.of("heads medusa")


def test_a_single_stage_says_what_it_needs(tmp_path: Path) -> None:
    single = Pipeline(recipe(tmp_path), Watch().model(), tmp_path / "work", tmp_path / "heads")
    for stage, needs in (("distill", "seeds"), ("heads", "distill"), ("calibrate", "distill"), ("artifact", "tree")):
        with pytest.raises(DatasetError, match=f"the stage {needs} is not finished") as caught:
            single.run(stage)
        assert caught.value.hint == f"medusa train {needs} --work {tmp_path / 'work'}"


def test_two_families_share_the_answers(tmp_path: Path) -> None:
    run(tmp_path, recipe(tmp_path, family="medusa"), Watch())
    watch = Watch()
    made = recipe(tmp_path, family="hydra")
    train_all(made, watch.model(), tmp_path / "work", tmp_path / "hydra", on_progress=watch)
    assert "already done" in watch.of("distill") and watch.of("heads hydra")
    assert load_artifact(tmp_path / "hydra").manifest.drafter.family == "hydra"
    assert load_artifact(tmp_path / "heads").manifest.drafter.family == "medusa"


def test_a_damaged_shard_stops_the_pipeline_with_its_name(tmp_path: Path) -> None:
    made, watch = recipe(tmp_path), Watch()
    pipe = Pipeline(made, watch.model(), tmp_path / "work", tmp_path / "heads")
    for stage in ("seeds", "distill", "capture"):
        pipe.run(stage)
    shard = tmp_path / "work/distill/shard-00000.safetensors"
    shard.write_bytes(shard.read_bytes()[:-5])
    with pytest.raises(DatasetError, match=r"shard-00000\.safetensors was changed or damaged"):
        run(tmp_path, made, Watch())


@pytest.mark.parametrize(
    ("speedup", "top1", "words"),
    [
        (1.6, 0.5, "worth serving: "),
        (1.04, 0.5, "not worth serving: "),
        (1.6, 0.2, "not worth serving, the next guess is right at 20 % of places: "),
    ],
)
def test_the_verdict_is_honest(speedup: float, top1: float, words: str) -> None:
    from medusakit.tree.cost import Budget

    verdict = drafting.verdict_of_budget(Budget(8, 2.1, 0.01, speedup), top1, "f32")
    assert verdict.startswith(words) and "2.10 tokens a step with 8 nodes" in verdict


def test_low_accuracy_is_called_not_worth_serving() -> None:
    assert "not worth serving" in drafting.verdict_of_top1(0.29)
    assert "usable" in drafting.verdict_of_top1(0.31) and "good" in drafting.verdict_of_top1(0.5)


def test_a_server_answers_in_the_models_stead(tmp_path: Path) -> None:
    """Its text is captured here, and the finished stage is not run again."""
    wanted = recipe(tmp_path)
    seeds = SeedConfig(templates=6, turn_shares=())
    with listening(service_of(scripted("A plain answer. "))[0]) as url:
        served = wanted.model_copy(update={"seeds": seeds, "endpoint": EndpointConfig(url=url, concurrency=2)})
        watch = Watch()
        pipeline = Pipeline(served, watch.model(), tmp_path / "work", tmp_path / "out", watch)
        pipeline.run("seeds")
        pipeline.run("distill")
        assert watch.opened == {1: 1}
        said = {ChatBytes().decode(sample.gen.tolist()) for sample in Dataset([tmp_path / "work" / "distill"])}
        pipeline.run("distill")
    assert said and all(text in "A plain answer. " * 40 for text in said)
    assert watch.opened == {1: 1} and "already done" in watch.of("distill")
