"""Stages 3 to 6 of the pipeline: heads, calibrate, tree, artifact. Needs torch; the stages before do not."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from medusakit.artifact.files import sha256_file, write_atomic
from medusakit.artifact.io import Artifact, load_artifact, save_artifact
from medusakit.artifact.schema import Backbone
from medusakit.drafters.registry import load_drafter
from medusakit.engine.remembered import remembered_cost
from medusakit.engine.speculation import expected_budget
from medusakit.errors import DatasetError
from medusakit.machine import machine_name
from medusakit.text.tokenizer import Tokenizer
from medusakit.train.calibrate import Ranks, calibrated_tree, expected_tau, measure_ranks
from medusakit.train.dataset import Dataset
from medusakit.train.heads import CHECKPOINT, TrainedHeads, train_heads
from medusakit.train.place import Place
from medusakit.train.progress import OnProgress, ignore
from medusakit.train.provenance import provenance
from medusakit.train.stages import Values, digest
from medusakit.tree.cost import Budget

USEFUL_TOP1 = 0.3
USEFUL_SPEEDUP = 1.05
_SHOWN_BUDGETS = (4, 6, 8, 16, 32, 64)


def train_stage(place: Place, dataset: Dataset) -> Values:
    folder = _heads_folder(place)
    inputs = {**place.recipe.heads.model_dump(mode="json"), "data": _content(dataset)}

    def work() -> Values:
        _forget_other_run(place, folder, inputs)
        trained = _train(place, dataset, place.on_progress)
        return {
            "summary": f"{trained.train_tokens:,} tokens, {trained.steps} steps",
            "train_tokens": trained.train_tokens,
            "coverage": round(trained.coverage, 5),
            "checkpoint": sha256_file(folder / CHECKPOINT),
        }

    return place.book.run(f"heads-{place.family}", inputs, [folder / CHECKPOINT], work)


def calibrate_stage(place: Place, dataset: Dataset) -> Values:
    heads = place.book.result(f"heads-{place.family}")
    out = _ranks_file(place)

    def work() -> Values:
        trained = _train(place, dataset, ignore)  # finished: only opened, which is nothing to tell
        held_out = dataset.split(place.recipe.heads.held_out, seed=place.recipe.heads.seed)[1]
        if not len(held_out):
            raise DatasetError("no conversation is held out to calibrate on",
                               hint="more seeds, or a larger held_out in [heads] of the recipe")  # fmt: skip
        samples = [dataset[index] for index in held_out.tolist()]
        ranks = measure_ranks(trained.net, samples, trained.backdrop, on_progress=place.on_progress)
        _save_arrays(out, {"ranks": ranks.ranks, "best": ranks.best})
        top1 = ranks.top_k(1)
        place.book.say("calibrate", verdict_of_top1(top1[0]))
        return {
            "summary": verdict_of_top1(top1[0]),
            "top1_by_depth": [round(share, 4) for share in top1],
            "exponents": ranks.exponents(),
            "held_out_answers": len(samples),
            "sha256": sha256_file(out),
        }

    return place.book.run(f"calibrate-{place.family}", {"heads": heads["checkpoint"]}, [out], work)


def tree_stage(place: Place, backbone: Backbone, dataset: Dataset, licenses: Mapping[str, str]) -> Values:
    """Grow the tree, put everything into a candidate artifact, and say what it is worth on this machine."""
    calibration = place.book.result(f"calibrate-{place.family}")
    heads = place.book.result(f"heads-{place.family}")
    candidate = place.work / f"candidate-{place.family}"
    settings = portable(place)
    inputs = {"ranks": calibration["sha256"], "settings": settings, "machine": machine_name()}

    def work() -> Values:
        arrays = np.load(_ranks_file(place))
        data = f"{calibration['held_out_answers']} held-out answers of the model"
        tree = calibrated_tree(Ranks(arrays["ranks"], arrays["best"]), place.recipe.tree_nodes, data)
        trained = _train(place, dataset, ignore)
        metrics: dict[str, Any] = {
            "top1_by_depth": calibration["top1_by_depth"],
            "exponents": calibration["exponents"],
            "tau_by_budget": {str(n): round(expected_tau(tree, n), 3) for n in _SHOWN_BUDGETS},
            "draft_vocab_coverage": heads["coverage"],
        }

        def save(**more: Any) -> Artifact:
            origin = provenance(settings, train_tokens=heads["train_tokens"], metrics={**metrics, **more},
                                licenses=licenses, rope=place.model.source.spec.rope)  # fmt: skip
            return save_artifact(candidate, backbone=backbone, drafter=trained.config, tree=tree,
                                 tensors=trained.tensors(), provenance=origin)  # fmt: skip

        budget = _measured_budget(place, save())
        verdict = verdict_of_budget(budget, calibration["top1_by_depth"][0], place.recipe.weights)
        save(verdict=verdict)
        place.book.say("tree", verdict)
        return {"summary": verdict, "manifest": sha256_file(candidate / "medusa.json")}

    return place.book.run(f"tree-{place.family}", inputs, [candidate / "medusa.json"], work)


def artifact_stage(place: Place, out: Path) -> Values:
    """The candidate becomes the artifact that was asked for."""
    tree = place.book.result(f"tree-{place.family}")
    candidate = load_artifact(place.work / f"candidate-{place.family}")
    manifest = candidate.manifest

    def work() -> Values:
        save_artifact(out, backbone=manifest.backbone, drafter=manifest.drafter, tree=candidate.tree,
                      tensors=candidate.tensors(), provenance=manifest.provenance)  # fmt: skip
        place.book.say("artifact", f"{out} is ready: medusa run --heads {out} -m {place.recipe.model}")
        return {"summary": str(out)}

    inputs = {"manifest": tree["manifest"], "out": str(out)}
    return place.book.run(f"artifact-{place.family}", inputs, [out / "medusa.json"], work)


def verdict_of_top1(share: float) -> str:
    """What held-out top-1 at depth 1 promises (the paper's heads: .56; ours on 131k tokens: .32 medusa, .47 hydra)."""
    if share < USEFUL_TOP1:
        return f"top-1 at depth 1 is {share:.2f}: not worth serving, train on more answers"
    return f"top-1 at depth 1 is {share:.2f}: {'good' if share >= 0.45 else 'usable; more answers would help'}"


def verdict_of_budget(budget: Budget, top1: float, weights: str) -> str:
    """Honest in both directions; the figure is for one request at a time on the machine that trained."""
    what = (f"expected {budget.tau:.2f} tokens a step with {budget.num_nodes} nodes, {budget.speedup:.2f} times plain "
            f"decoding on this machine ({weights})")  # fmt: skip
    if top1 < USEFUL_TOP1:
        return f"not worth serving, the next guess is right at {100 * top1:.0f} % of places: {what}"
    if budget.speedup < USEFUL_SPEEDUP:
        return f"not worth serving: {what}"
    return f"worth serving: {what}"


def always_ids(tokenizer: Tokenizer, vocab_size: int) -> Iterator[int]:
    """Ids that any draft vocabulary holds: special, digit, white-space and single-byte tokens."""
    for token_id in range(min(tokenizer.vocab_size, vocab_size)):
        text = tokenizer.token_bytes(token_id)
        if token_id in tokenizer.special_ids or len(text) <= 1 or text.isspace() or text.strip().isdigit():
            yield token_id


def _train(place: Place, dataset: Dataset, on_progress: OnProgress) -> TrainedHeads:
    """Trains, or, where the checkpoint is finished, only opens it."""
    ids = always_ids(place.model.tokenizer, place.model.source.spec.vocab_size)
    return train_heads(dataset, place.model.source, place.recipe.heads, _heads_folder(place), always_ids=ids,
                       on_progress=on_progress)  # fmt: skip


def _forget_other_run(place: Place, folder: Path, inputs: Mapping[str, Any]) -> None:
    """A checkpoint of other settings or data cannot be continued; the same inputs can."""
    begun, key = folder / "begun", digest(inputs)
    checkpoint = folder / CHECKPOINT
    if checkpoint.exists() and (not begun.exists() or begun.read_text(encoding="utf-8") != key):
        place.book.say(f"heads-{place.family}", "settings or data changed: training starts again")
        checkpoint.unlink()
    folder.mkdir(parents=True, exist_ok=True)
    write_atomic(begun, key.encode())


def _measured_budget(place: Place, artifact: Artifact) -> Budget:
    runtime = place.model.runtime(1)
    try:
        threads = place.model.threads
        drafter = load_drafter(artifact, place.model.source, threads=threads)
        cost = remembered_cost(runtime, place.model.source.fingerprint, threads or 0)
        budget = expected_budget(artifact, artifact.topology(place.recipe.tree_nodes + 1), drafter, runtime, cost)
    finally:
        runtime.close()
    assert budget is not None, "a calibrated tree has every node's acceptance"
    return budget


def portable(place: Place) -> Values:
    """The recipe without folders of this machine."""
    recipe = place.recipe
    settings: Values = recipe.model_dump(mode="json", exclude={"joint"})
    settings["model"] = Path(recipe.model).name if Path(recipe.model).exists() else recipe.model
    settings["capture"] = [Path(name).name for name in recipe.capture]
    for key in ("files", "answered"):
        settings["seeds"][key] = [Path(name).name for name in settings["seeds"][key]]
    return settings


def _content(dataset: Dataset) -> str:
    return digest([entry.sha256 for manifest in dataset.manifests for entry in manifest.shards])


def _heads_folder(place: Place) -> Path:
    return place.work / f"heads-{place.family}"


def _ranks_file(place: Place) -> Path:
    return place.work / f"ranks-{place.family}.npz"


def _save_arrays(path: Path, arrays: Mapping[str, Any]) -> None:
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    write_atomic(path, buffer.getvalue())
