"""From answers to a tuned model with its heads, on a random tiny model: it loads in both runtimes, with a report."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from joint_toys import HEADS, JOINT, model_folder
from medusakit.artifact.io import load_artifact
from medusakit.errors import UsageError
from medusakit.llm import LLM
from medusakit.settings import SamplingParams
from medusakit.train.distill import DistillConfig
from medusakit.train.joint.config import QualityConfig
from medusakit.train.joint.scores import Scores, change, difference
from medusakit.train.joint.speed import Decoded, ratio
from medusakit.train.leakage import BenchmarkTexts
from medusakit.train.pipeline import Pipeline
from medusakit.train.place import OpenModel, open_model
from medusakit.train.progress import Progress
from medusakit.train.recipe import Recipe
from medusakit.train.seeds import SeedConfig

QUALITY = QualityConfig(prompts=3, max_new_tokens=8, budget=4, naive=True, tasks=False)


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, one_thread: None) -> None:
    monkeypatch.setenv("MEDUSA_HOME", str(tmp_path / "home"))
    monkeypatch.setattr("medusakit.train.seeds.spec_bench_texts", lambda: BenchmarkTexts([]))


def recipe(folder: Path) -> Recipe:
    return Recipe(
        model=str(folder),
        seeds=SeedConfig(templates=30, turn_shares=(0.3,), max_chars=120),
        distill=DistillConfig(rows=4, max_new_tokens=8, max_prompt_tokens=400, shard_tokens=60),
        heads=HEADS,
        joint=JOINT.model_copy(update={"quality": QUALITY, "batch_tokens": 512}),
        tree_nodes=7,
    )


def test_answers_to_a_tuned_model_and_its_report(tmp_path: Path) -> None:
    model_folder(tmp_path / "m", max_position_embeddings=512)
    made, out, notes = recipe(tmp_path / "m"), tmp_path / "tuned", list[str]()

    def watch(progress: Progress) -> None:
        if progress.finished:
            notes.append(f"{progress.stage}: {progress.note}")

    def pipeline() -> Pipeline:
        return Pipeline(made, open_model(made, threads=1, offline=True), tmp_path / "work", out, watch)

    for stage in ("seeds", "distill", "capture", "joint", "quality"):
        pipeline().run(stage)
    report = json.loads((out / "medusa" / "quality.json").read_text())
    assert set(report["perplexity"]) == {"original", "tuned", "naive", "change_percent"}
    assert report["perplexity"]["original"] != report["perplexity"]["tuned"] != report["perplexity"]["naive"]
    assert 0 <= report["agreement"]["tuned"] <= 1 and report["tasks"] == {}
    assert report["tau"]["heads_only"] >= 1 and report["tau"]["joint"] >= 1 and report["tau"]["prompts"] == 3
    artifact = load_artifact(out / "medusa")
    assert (
        artifact.manifest.backbone.fingerprint
        != load_artifact(tmp_path / "work" / "joint" / "heads-only").manifest.backbone.fingerprint
    )
    assert str(tmp_path) not in artifact.manifest.model_dump_json()
    _decodes(out, "onnx")
    _decodes(out, "torch")
    notes.clear()
    for stage in ("joint", "quality"):
        pipeline().run(stage)
    assert all("already done" in note for note in notes), notes


def _decodes(folder: Path, runtime: str) -> None:
    """Heads are found beside the model, draft at every step, and change nothing."""
    params = SamplingParams(max_tokens=12, ignore_eos=True)
    with LLM.load(str(folder), runtime=runtime, drafter="medusa", budget=4, dynamic_tree=False, threads=1) as llm:
        assert llm.parts.artifact is not None and llm.parts.artifact.path.parent == folder
        drafted = llm.generate("hello", params)
        assert drafted.token_ids == llm.generate("hello", params, speculation=False).token_ids
        assert drafted.stats.num_nodes > drafted.stats.num_steps


def test_a_model_without_files_is_refused(tmp_path: Path) -> None:
    model_folder(tmp_path / "m")
    made = recipe(tmp_path / "m")
    opened = open_model(made, threads=1, offline=True)
    bare = OpenModel(opened.source, opened.tokenizer, opened.runtime, 1)
    with pytest.raises(UsageError, match="files"):
        Pipeline(made, bare, tmp_path / "work", tmp_path / "out").run("joint")


def scores(nll: list[float], tokens: int = 10) -> Scores:
    num = len(nll)
    best = np.zeros(num * tokens, np.int64)
    return Scores(np.arange(num), np.full(num, tokens), np.array(nll), best)


def test_changes_of_perplexity_and_their_intervals() -> None:
    rng = np.random.default_rng(0)
    base = rng.uniform(5, 30, 200)
    before, after = scores(base.tolist()), scores((base + 0.1 + 0.05 * rng.standard_normal(200)).tolist())
    found = change(after, before)  # 0.01 nats a token: one per cent, whatever the answers' own spread
    assert found.low < found.percent < found.high and found.percent == pytest.approx(1.0, abs=0.1)
    assert found.high - found.low < 0.2
    worse = scores((base + 0.5).tolist())
    apart = difference(worse, after, before)
    assert apart.percent == pytest.approx(change(worse, before).percent - found.percent, abs=0.01) and apart.low > 3
    assert change(before, before).percent == 0.0
    assert before.agreement(after) == 1.0


def test_the_ratio_of_tokens_per_step() -> None:
    fast, slow = Decoded((20, 40, 30), (10, 20, 15)), Decoded((20, 40, 30), (16, 32, 24))
    assert fast.tau == 2.0 and slow.tau == 1.25
    assert ratio(fast, slow) == pytest.approx((1.6, 1.6, 1.6))
