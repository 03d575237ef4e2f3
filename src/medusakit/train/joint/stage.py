"""The stage `joint`: heads, then heads and backbone together, then a model folder with its heads in it.

work/joint/heads/          stage 1
work/joint/joint-*.pt      checkpoints of stage 2, one of each process
work/joint/trained.safetensors
OUT/                       the merged model; OUT/medusa/: its heads, where `medusa` finds them by itself
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor, nn

from medusakit.artifact.files import atomic_folder, write_atomic
from medusakit.artifact.io import save_artifact
from medusakit.artifact.schema import Backbone
from medusakit.errors import DatasetError, UsageError
from medusakit.models.resolve import ResolvedModel, open_weights
from medusakit.models.spec import WeightSource
from medusakit.text.tokenizer import load_tokenizer
from medusakit.train.calibrate import calibrated_tree, expected_tau, measure_ranks
from medusakit.train.dataset import Dataset
from medusakit.train.drafting import always_ids, portable
from medusakit.train.heads import TrainedHeads, train_heads, untrained_heads
from medusakit.train.joint.config import JointConfig
from medusakit.train.joint.merge import HEADS, check_out, save_merged, trained_part
from medusakit.train.joint.net import hidden_states, tuned
from medusakit.train.joint.run import Parts, open_accelerator, train_joint
from medusakit.train.joint.scores import tell
from medusakit.train.place import Place
from medusakit.train.provenance import backbone_of, provenance
from medusakit.train.shards import Sample
from medusakit.train.stages import Values, digest

TRAINED = "trained.safetensors"
_SHOWN_BUDGETS = (4, 6, 8, 16, 32, 64)


@dataclass(frozen=True, slots=True)
class JointPlace:
    """A place of training, the answers, and the model's files."""

    place: Place
    dataset: Dataset
    resolved: ResolvedModel

    @property
    def work(self) -> Path:
        return self.place.work / "joint"

    @property
    def config(self) -> JointConfig:
        return self.place.recipe.joint

    def open_backbone(self, *, quantised: bool = False) -> Any:
        """The transformers model, float32, or 4-bit on CUDA."""
        from medusakit.runtimes.torch.load import pretrained

        options = {"quantization_config": four_bit()} if quantised else None
        return pretrained(self.resolved, weights="f32", threads=self.place.model.threads, options=options)

    def heads(self, *, stages: int, epochs: float | None = None) -> TrainedHeads:
        """Stage 1, from its checkpoint if it is done; or the heads that one stage begins with."""
        config, model = self.place.recipe.heads, self.place.model
        ids = always_ids(model.tokenizer, model.source.spec.vocab_size)
        if stages == 1:
            return untrained_heads(self.dataset, model.source, config, always_ids=ids)
        name = "heads" if epochs is None else f"heads-{epochs:g}"
        settings = config if epochs is None else config.model_copy(update={"epochs": epochs})
        return train_heads(self.dataset, model.source, settings, self.work / name, always_ids=ids,
                           on_progress=self.place.on_progress)  # fmt: skip

    def held_out(self) -> tuple[list[Sample], list[Sample]]:
        """Answers of held-out conversations: (to grow trees on, to measure on), whole conversations each."""
        config = self.place.recipe.heads
        indices = self.dataset.split(config.held_out, seed=config.seed)[1].tolist()
        samples = [sample for sample in map(self.dataset.__getitem__, indices) if sample.num_generated > 1]
        order = {group: place for place, group in enumerate(sorted({sample.group for sample in samples}))}
        if len(order) < 2:
            raise DatasetError("joint training holds out two conversations or more, to calibrate and to measure on",
                               hint="more answers, or a larger held_out in [heads] of the recipe")  # fmt: skip
        halves: tuple[list[Sample], list[Sample]] = ([], [])
        for sample in samples:
            halves[order[sample.group] % 2].append(sample)
        return halves


def joint_stage(at: JointPlace, licenses: Mapping[str, str], out: Path) -> Values:
    """Train, merge, and write OUT. Finished before with the same settings and data, it is not run again. Raises
    UsageError where OUT holds something else."""
    check_out(out, at.resolved.path)
    recipe, config = at.place.recipe, at.config
    inputs = {
        "joint": config.model_dump(mode="json", exclude={"quality"}),
        "heads": recipe.heads.model_dump(mode="json"),
        "data": digest([entry.sha256 for manifest in at.dataset.manifests for entry in manifest.shards]),
        "out": str(out),
    }

    def work() -> Values:
        accelerator = open_accelerator()
        with accelerator.main_process_first():
            begun = at.heads(stages=config.stages)
        trained = train_heads_and_backbone(at, config, begun, "joint", accelerator)
        if not accelerator.is_main_process:
            raise SystemExit(0)  # the first process alone has the rest to do
        write_atomic(at.work / TRAINED, save(trained))
        return _write(at, begun, trained, licenses, out)

    return at.place.book.run("joint", inputs, [out / "config.json", at.work / TRAINED], work)


def train_heads_and_backbone(
    at: JointPlace, config: JointConfig, begun: TrainedHeads, name: str, accelerator: Any, *, tokens: int = 0
) -> dict[str, Tensor]:
    """tokens: train on so many tokens of the answers; 0: as [heads] says."""
    parts = Parts(at.open_backbone(quantised=config.quantised), begun.net.requires_grad_(True), begun.backdrop)
    heads = at.place.recipe.heads
    heads = heads.model_copy(update={"max_tokens": tokens}) if tokens else heads
    return train_joint(parts, at.dataset, config, heads, at.work, accelerator, name=name,
                       on_progress=at.place.on_progress)  # fmt: skip


def read_trained(at: JointPlace) -> dict[str, Tensor]:
    """What the stage left."""
    try:
        tensors: dict[str, Tensor] = load_file(at.work / TRAINED)
    except (OSError, SafetensorError) as cause:
        message = f"{at.work / TRAINED} is damaged or cut short"
        raise DatasetError(message, hint=f"rm {at.work / TRAINED}   then medusa train joint writes it again") from cause
    return tensors


def save_heads(
    path: Path,
    heads: TrainedHeads,
    samples: Sequence[Sample],
    at: JointPlace,
    backbone: Backbone,
    *,
    source: WeightSource,
    licenses: Mapping[str, str],
    metrics: Mapping[str, Any],
) -> dict[str, float]:
    """Calibrate on `samples` (states of the model that the heads are for) and write the artifact. Gives tau by budget.

    source  of that model
    """
    place = at.place
    ranks = measure_ranks(heads.net, samples, heads.backdrop, on_progress=place.on_progress)
    tree = calibrated_tree(ranks, place.recipe.tree_nodes, f"{len(samples)} held-out answers")
    found = {str(budget): round(expected_tau(tree, budget), 3) for budget in _SHOWN_BUDGETS}
    figures = {
        "top1_by_depth": [round(share, 4) for share in ranks.top_k(1)],
        "exponents": ranks.exponents(),
        "tau_by_budget": found,
        "draft_vocab_coverage": round(heads.coverage, 5),
        **metrics,
    }
    settings = {**portable(place), "joint": place.recipe.joint.model_dump(mode="json", exclude={"quality"})}
    origin = provenance(settings, train_tokens=heads.train_tokens, metrics=figures, licenses=licenses,
                        rope=source.spec.rope)  # fmt: skip
    save_artifact(path, backbone=backbone, drafter=heads.config, tree=tree, tensors=heads.tensors(), provenance=origin)
    return found


def four_bit() -> Any:
    """transformers' settings of QLoRA (2305.14314). Raises UsageError where bitsandbytes cannot run."""
    import torch

    try:
        import bitsandbytes  # noqa: F401  # transformers looks for it later, with a less plain message
    except ImportError as cause:
        raise UsageError("quantised = true needs bitsandbytes", hint="pip install bitsandbytes") from cause
    if not torch.cuda.is_available():
        raise UsageError("quantised = true needs a CUDA device, and there is none", hint="quantised = false")
    from transformers import BitsAndBytesConfig

    return BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=torch.bfloat16)


def _write(
    at: JointPlace, begun: TrainedHeads, trained: dict[str, Tensor], licenses: Mapping[str, str], out: Path
) -> Values:
    model = tuned(at.open_backbone(), at.config, trained_part(trained, "backbone"))
    projection = model.get_output_embeddings().weight.detach()
    calibration = at.held_out()[0]
    told = tell(lambda ids: hidden_states(model, ids), projection, calibration, stage="calibrate",
                on_progress=at.place.on_progress)  # fmt: skip
    with atomic_folder(out) as folder:
        save_merged(model, at.resolved, folder)
        written = ResolvedModel(str(folder), folder, "hf")
        source, tokenizer = open_weights(written), load_tokenizer(written)
        backbone = backbone_of(source, tokenizer).model_copy(update={"name": out.name})
        heads = _with(begun, trained_part(trained, "heads"))
        found = save_heads(folder / HEADS, heads, told.samples, at, backbone, source=source, licenses=licenses,
                           metrics={"joint": True})  # fmt: skip
    at.place.book.say("joint", f"{out} is ready: medusa run -m {out}")
    return {"summary": f"{begun.train_tokens:,} tokens; expected tokens a step {found}", "tau_by_budget": found}


def _with(heads: TrainedHeads, tensors: dict[str, Tensor]) -> TrainedHeads:
    """The same heads with other weights, rounded to what an artifact stores."""
    net: nn.Module = heads.net
    net.load_state_dict({name: value.half().float() for name, value in tensors.items()})
    return TrainedHeads(heads.config, net.eval().requires_grad_(False), heads.backdrop, heads.draft_ids,
                        heads.coverage, heads.train_tokens, heads.steps)  # fmt: skip
