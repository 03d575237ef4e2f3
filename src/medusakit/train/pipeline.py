"""All stages in order, from seeds to artifact. Every stage is resumable, and a finished one is not run again.

seeds -> distill, capture -> heads -> calibrate -> tree -> artifact
                          -> joint -> quality: the model is tuned too (joint/stage.py), only where that is asked for
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from medusakit.artifact.files import make_folder, sha256_file
from medusakit.artifact.io import Artifact, load_artifact
from medusakit.artifact.schema import Backbone
from medusakit.errors import DatasetError, UsageError
from medusakit.train.capture import capture
from medusakit.train.dataset import Dataset
from medusakit.train.distill import distill
from medusakit.train.endpoint_answers import EndpointConfig, answer_remotely, endpoint_of
from medusakit.train.manifest import read_manifest
from medusakit.train.place import OpenModel, Place
from medusakit.train.progress import OnProgress, ignore
from medusakit.train.provenance import backbone_of
from medusakit.train.recipe import Recipe
from medusakit.train.seeds import make_seeds, read_json_lines, read_seeds
from medusakit.train.stages import StageBook, Values, digest

if TYPE_CHECKING:
    from medusakit.train.joint.stage import JointPlace

STAGES = ("seeds", "distill", "capture", "heads", "calibrate", "tree", "artifact")


def train_all(recipe: Recipe, model: OpenModel, work: Path, out: Path, *, on_progress: OnProgress = ignore) -> Artifact:
    """Run what is not finished yet. Ctrl-C saves, and the same call goes on from there."""
    pipeline = Pipeline(recipe, model, work, out, on_progress)
    for stage in STAGES:
        pipeline.run(stage)
    return load_artifact(out)


@dataclass(slots=True)
class Pipeline:
    """The stages over one work folder. Seeds and answers are shared by all families trained there.

    work/seeds.jsonl, work/distill/, work/capture-*/, work/heads-<family>/, work/ranks-<family>.npz,
    work/tree-<family>.json, and `<stage>.done.json` of each finished stage
    """

    recipe: Recipe
    model: OpenModel
    work: Path
    out: Path
    on_progress: OnProgress = ignore
    _book: StageBook = field(init=False)
    _backbone: Backbone = field(init=False)
    _dataset: Dataset | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        self._book = StageBook(make_folder(self.work), self.on_progress)
        self._backbone = backbone_of(self.model.source, self.model.tokenizer)

    def run(self, stage: str) -> Values:
        """One stage, from what the stages before it left. Raises DatasetError if they are not finished."""
        steps: dict[str, Callable[[], Values]] = {
            "seeds": self._seeds,
            "distill": self._distill,
            "capture": self._capture,
            "heads": self._train,
            "calibrate": self._calibrate,
            "tree": self._tree,
            "artifact": self._artifact,
            "joint": self._joint,
            "quality": self._quality,
        }
        return steps[stage]()

    def _seeds(self) -> Values:
        config, out = self.recipe.seeds, self.work / "seeds.jsonl"
        files = [sha256_file(Path(name)) for name in (*config.files, *config.answered)]
        settings = config.model_dump(exclude={"files", "answered"})

        def work() -> Values:
            report = make_seeds(config, out)
            dropped = ", ".join(f"{count} {reason}" for reason, count in report.dropped.items())
            summary = f"{report.num:,} prompts of {len(report.by_category)} kinds; dropped: {dropped or 'none'}"
            self._book.say("seeds", summary)
            return {"summary": summary, "licenses": report.licenses, "sha256": sha256_file(out)}

        return self._book.run("seeds", {**settings, "files": files}, [out], work)

    def _distill(self) -> Values:
        if self.recipe.endpoint is not None:
            return self._distill_remotely(self.recipe.endpoint)
        config, out = self.recipe.distill, self.work / "distill"
        inputs = {**self._model_inputs(), **config.model_dump(exclude={"rows", "shard_tokens"})}
        inputs["seeds"] = self._book.result("seeds")["sha256"]

        def work() -> Values:
            self._set_aside(out, config.seed, config.settings())
            runtime = self.model.runtime(config.rows)
            try:
                report = distill(
                    runtime,
                    self.model.tokenizer,
                    read_seeds(self.work / "seeds.jsonl"),
                    out,
                    config,
                    backbone=self._backbone,
                    on_progress=self.on_progress,
                )
            finally:
                runtime.close()
            return {"summary": f"{report.num_tokens:,} tokens of {report.num_samples:,} answers"}

        return self._book.run("distill", inputs, [out], work)

    def _distill_remotely(self, server: EndpointConfig) -> Values:
        """A server answers into a file named by all that shapes the answers; their states are captured from it."""
        config, out = self.recipe.distill, self.work / "distill"
        inputs = {**self._model_inputs(), **config.settings(), "max_tokens": config.max_tokens, "seed": config.seed}
        inputs |= {"endpoint": server.model or server.url, "seeds": self._book.result("seeds")["sha256"]}
        file = self.work / f"endpoint-{digest({**inputs, 'max_tokens': 0})}.jsonl"

        def work() -> Values:
            seeds = read_seeds(self.work / "seeds.jsonl")
            report = answer_remotely(endpoint_of(server), self.model.tokenizer, seeds, file, config,
                                     concurrency=server.concurrency, on_progress=self.on_progress)  # fmt: skip
            self._set_aside(out, 0, {"answers_sha256": sha256_file(file)})
            runtime = self.model.runtime(1)
            try:
                tokens = capture(runtime, self.model.tokenizer, file, out, backbone=self._backbone,
                                 on_progress=self.on_progress)  # fmt: skip
            finally:
                runtime.close()
            return {"summary": f"{tokens:,} tokens of {report.num:,} conversations, answered by {server.url}"}

        return self._book.run("distill", inputs, [out, file], work)

    def _capture(self) -> Values:
        files = [Path(name) for name in self.recipe.capture]
        folders = self._capture_folders()
        inputs = {**self._model_inputs(), "files": [folder.name for folder in folders]}

        def work() -> Values:
            runtime = self.model.runtime(1)
            try:
                tokens = sum(
                    capture(runtime, self.model.tokenizer, file, folder, backbone=self._backbone,
                            on_progress=self.on_progress)
                    for file, folder in zip(files, folders, strict=True)
                )  # fmt: skip
            finally:
                runtime.close()
            return {"summary": f"{tokens:,} tokens", "licenses": _licenses(files)}

        if not files:
            return {}
        return self._book.run("capture", inputs, folders, work)

    def _train(self) -> Values:
        from medusakit.train.drafting import train_stage

        return train_stage(self._place(), self.dataset())

    def _calibrate(self) -> Values:
        from medusakit.train.drafting import calibrate_stage

        return calibrate_stage(self._place(), self.dataset())

    def _tree(self) -> Values:
        from medusakit.train.drafting import tree_stage

        return tree_stage(self._place(), self._backbone, self.dataset(), self._licenses())

    def _artifact(self) -> Values:
        from medusakit.train.drafting import artifact_stage

        return artifact_stage(self._place(), self.out)

    def _joint(self) -> Values:
        from medusakit.train.joint.stage import joint_stage

        return joint_stage(self._joint_place(), self._licenses(), self.out)

    def _quality(self) -> Values:
        from medusakit.train.joint.quality import quality_stage

        return quality_stage(self._joint_place(), self._licenses(), self.out)

    def _joint_place(self) -> JointPlace:
        from medusakit.train.joint.stage import JointPlace

        if self.model.resolved is None:
            raise UsageError("joint training needs the model's files", hint="-m MODEL")
        return JointPlace(self._place(), self.dataset(), self.model.resolved)

    def _place(self) -> Place:
        return Place(self.recipe, self.model, self.work, self._book, self.on_progress)

    def dataset(self) -> Dataset:
        """Everything that was distilled and captured, checked against its sha256 once. Raises DatasetError for shards
        that are damaged or another model's."""
        if self._dataset is None:
            self._book.result("distill")
            folders = [self.work / "distill", *self._capture_folders()]
            found = Dataset(folders)
            self._check_model(found.backbone)
            self._dataset = found
        return self._dataset

    def _check_model(self, found: Backbone) -> None:
        """Another model's states of the same width would train without a word."""
        if found.fingerprint != self._backbone.fingerprint:
            raise DatasetError(
                f"the answers in {self.work} are those of {found.name} ({found.fingerprint[:12]}), but the model is "
                f"{self._backbone.name} ({self._backbone.fingerprint[:12]})",
                hint="the model that answered, or another --work and medusa train distill",
            )

    def _capture_folders(self) -> list[Path]:
        """One per answers file, named by its content, so that another file makes another folder."""
        return [self.work / f"capture-{sha256_file(Path(name))[:12]}" for name in self.recipe.capture]

    def _model_inputs(self) -> Values:
        return {
            "model": self.model.source.fingerprint,
            "tokenizer": self.model.tokenizer.hash,
            "weights": self.recipe.weights,
        }

    def _licenses(self) -> dict[str, str]:
        found: dict[str, str] = dict(self._book.result("seeds")["licenses"])
        if self.recipe.capture:
            found |= self._book.result("capture")["licenses"]
        return found

    def _set_aside(self, folder: Path, seed: int, settings: Values) -> None:
        """Answers cost hours: those made with other settings are kept beside the new ones, and that is said."""
        if not (folder / "manifest.json").exists():
            return
        found, wanted = read_manifest(folder), (self._backbone.fingerprint, seed, settings)
        if (found.backbone.fingerprint, found.seed, found.settings) != wanted:
            number = sum(1 for _ in folder.parent.glob(f"{folder.name}.old-*"))
            kept = folder.with_name(f"{folder.name}.old-{number}")
            folder.rename(kept)
            self._book.say("distill", f"{found.num_tokens:,} tokens made with other settings are kept in {kept}")


def _licenses(files: Iterable[Path]) -> dict[str, str]:
    return {
        str(entry.get("source", file.name)): str(entry.get("license", "unknown"))
        for file in files
        for _, entry in read_json_lines(file)
    }
