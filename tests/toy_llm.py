"""A whole `LLM` of random weights in memory, and heads that were trained for it in a moment. Nothing in it is faked.

heads = toy_heads(tmp_path, "hydra")     # a folder, as `medusa train all` writes it: calibrated, and often right
llm = toy_llm(heads)                     # with its engine, drafters and trees; one token a byte, with a chat template
with toy_server(llm) as service: ...     # with the scheduler, as `medusa serve` opens it
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

from medusakit.artifact.io import load_artifact
from medusakit.drafters.draft_model.drafter import DraftModelDrafter
from medusakit.engine.jobs import SchedulerSettings
from medusakit.engine.loading import Loaded
from medusakit.engine.speculation import speculation
from medusakit.engine.wishes import Wishes
from medusakit.llm import LLM
from medusakit.models.resolve import ResolvedModel
from medusakit.runtimes.base import Runtime
from medusakit.runtimes.reference import ReferenceRuntime
from medusakit.runtimes.reference_source import ArraySource, random_source
from medusakit.server.keys import Keyring
from medusakit.server.opening import open_serving
from medusakit.server.service import Options, Service
from medusakit.tree.cost import StepCost
from server_fakes import ChatBytes

SOURCE: ArraySource = random_source(5, 258, hidden_size=32, num_layers=1, context_length=256, sharpness=5.0)
ROWS = 8
FREE = StepCost.single({1: 1.0, 64: 1.0})  # further nodes cost nothing, so trees are wide and always pay


def toy_runtime(rows: int = ROWS) -> Runtime:
    return ReferenceRuntime(SOURCE, max_rows=rows)


def twin() -> DraftModelDrafter:
    """The model itself as its own draft model."""
    return DraftModelDrafter(toy_runtime())


def toy_llm(
    heads: Path | None = None,
    wishes: Wishes = Wishes(),  # noqa: B008  frozen
    *,
    second: DraftModelDrafter | None = None,
    cost: StepCost = FREE,
) -> LLM:
    """As `LLM.load` would put it together."""
    artifact, runtime = None if heads is None else load_artifact(heads), toy_runtime()
    drafts_alone = second if wishes.draft_model is not None else None
    found = speculation(wishes, artifact, SOURCE, runtime, cost, second=drafts_alone, threads=1)
    return LLM(
        Loaded(
            ResolvedModel("toy", Path("toy.gguf"), "gguf"),
            SOURCE,
            runtime,
            ChatBytes(),  # type: ignore[arg-type]
            artifact,
            found,
            cost,
            second=second,
            wishes=wishes,
        )
    )


@contextmanager
def toy_server(llm: LLM, options: Options | None = None, **settings: int) -> Iterator[Service]:
    """A service that answers, with the scheduler's thread; ends with the block."""
    service = Service(options or Options(), Keyring(()))
    serving = open_serving(llm, "toy", SchedulerSettings(**{"max_rows": ROWS, **settings}), service)
    service.opened(serving)
    try:
        yield service
    finally:
        serving.scheduler.close()


def toy_heads(folder: Path, family: str = "medusa", *, seed: int = 0) -> Path:
    """Trained on the model's own answers, with a calibrated tree."""
    import torch

    from medusakit.train import drafting
    from medusakit.train.distill import DistillConfig
    from medusakit.train.heads_config import HeadsConfig
    from medusakit.train.leakage import BenchmarkTexts
    from medusakit.train.pipeline import train_all
    from medusakit.train.place import OpenModel
    from medusakit.train.recipe import Recipe
    from medusakit.train.seeds import SeedConfig

    recipe = Recipe(
        seeds=SeedConfig(templates=24, turn_shares=(1.0,), max_chars=150),
        distill=DistillConfig(rows=4, max_new_tokens=24, max_prompt_tokens=200, shard_tokens=200, seed=seed),
        heads=HeadsConfig.model_validate(
            {"family": family, "depth": 3, "draft_vocab": 0, "epochs": 16, "batch_rows": 64, "held_out": 0.2,
             "averaging": 0.0, "dropout": 0.0, "warmup_steps": 2, "learning_rate": 0.02, "seed": seed}
        ),
        tree_nodes=12,
    )  # fmt: skip
    model = OpenModel(SOURCE, ChatBytes(), toy_runtime, threads=1)  # type: ignore[arg-type]
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # tiny matrices: threads would only wait for each other
    try:
        with (
            patch("medusakit.train.seeds.spec_bench_texts", lambda: BenchmarkTexts([])),
            patch.object(drafting, "remembered_cost", lambda *_: FREE),
        ):
            train_all(recipe, model, folder / "work", folder / f"{family}-{seed}")
    finally:
        torch.set_num_threads(threads)
    return folder / f"{family}-{seed}"
