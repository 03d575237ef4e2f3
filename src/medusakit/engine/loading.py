"""From names to a working engine: model, tokenizer, runtime, heads that fit, and drafting that pays on this machine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from medusakit.artifact.find import find_heads
from medusakit.artifact.io import Artifact
from medusakit.artifact.rope import aligned
from medusakit.drafters.draft_model.drafter import DraftModelDrafter
from medusakit.drafters.draft_model.load import load_draft_model
from medusakit.drafters.registry import WITHOUT_HEADS
from medusakit.engine.deviations import record_trip
from medusakit.engine.remembered import CostWatch, remembered_cost
from medusakit.engine.speculation import PLAIN_DECODING, Speculation, speculation
from medusakit.engine.wishes import RuntimeWishes, Wishes
from medusakit.errors import UsageError
from medusakit.models.resolve import ResolvedModel, open_weights, resolve
from medusakit.models.spec import WeightSource
from medusakit.runtimes.base import Runtime
from medusakit.runtimes.onnx.runtime import load_onnx
from medusakit.runtimes.onnx.session import default_threads
from medusakit.text.tokenizer import Tokenizer, load_tokenizer
from medusakit.tree.cost import StepCost


@dataclass(frozen=True, slots=True)
class Loaded:
    """Everything a generation needs.

    cost      T(n, context) here; None for plain decoding
    second    a model that drafts, which holds memory of its own
    wishes    what was asked of speculation
    threads   cores that a pass uses
    withheld  speculation is off, because in this format a tree pass may differ from plain decoding by more than a tie
    """

    resolved: ResolvedModel
    source: WeightSource = field(repr=False)
    runtime: Runtime
    tokenizer: Tokenizer
    artifact: Artifact | None
    speculation: Speculation
    cost: StepCost | None
    withheld: bool = False
    second: DraftModelDrafter | None = None
    wishes: Wishes = field(default_factory=Wishes)
    threads: int = field(default_factory=default_threads)

    def cost_watch(self) -> CostWatch | None:
        """What keeps `cost` true while the model is served; None for plain decoding."""
        if self.cost is None:
            return None
        return CostWatch(self.runtime, self.source.fingerprint, self.threads, self.cost)


def load_parts(
    model: str,
    runtime: RuntimeWishes,
    wishes: Wishes,
    *,
    heads: str = "auto",
    offline: bool = False,
    align_position_embed: bool = False,
) -> Loaded:
    """Open everything; see `LLM.load` for arguments and errors."""
    wishes.check(heads)
    runtime.check()
    threads = runtime.threads or default_threads()
    resolved = resolve(model, offline=offline)
    source, start = _opened(resolved, runtime)
    tokenizer = load_tokenizer(resolved)
    artifact = _heads(wishes, heads, source, resolved, tokenizer)
    if align_position_embed:
        source = _aligned(source, artifact, runtime)
    second = None
    if (name := wishes.draft_model) is not None:
        second = load_draft_model(
            name, source.spec, tokenizer, threads=threads, max_rows=runtime.max_rows, offline=offline
        )
    running = start(source)
    cost, withheld, found = None, False, PLAIN_DECODING
    asked = artifact is not None or heads != "none" or wishes.drafter is not None
    if asked and running.capabilities.chains:
        cost = remembered_cost(running, source.fingerprint, threads)
        withheld = wishes.budget is None and running.capabilities.exact != "bitwise-ties"
        found = speculation(
            wishes,
            artifact,
            source,
            running,
            cost,
            second=second,
            threads=threads,
            withheld=withheld,
            on_trip=record_trip,
        )
    return Loaded(
        resolved=resolved,
        source=source,
        runtime=running,
        tokenizer=tokenizer,
        artifact=artifact,
        speculation=found,
        cost=cost,
        withheld=withheld,
        second=second,
        wishes=wishes,
        threads=threads,
    )


def other_drafting(parts: Loaded, heads: str, wishes: Wishes) -> tuple[Speculation, Artifact | None]:
    """Drafting with other heads for a model that is loaded; nothing of `parts` changes.

    heads    "auto", "none" (drafting from the text alone) or a folder
    Raises ArtifactError (damaged, another model's), UsageError (where the model was loaded without drafting).
    """
    if parts.cost is None:
        message = "the model was loaded without drafting, so heads cannot be put in"
        raise UsageError(message, hint="medusa serve -m MODEL")
    wishes.check(heads)
    artifact = _heads(wishes, heads, parts.source, parts.resolved, parts.tokenizer)
    found = speculation(
        wishes,
        artifact,
        parts.source,
        parts.runtime,
        parts.cost,
        second=parts.second,
        threads=parts.threads,
        withheld=parts.withheld,
        on_trip=record_trip,
    )
    return found, artifact


def _heads(
    wishes: Wishes, heads: str, source: WeightSource, resolved: ResolvedModel, tokenizer: Tokenizer
) -> Artifact | None:
    """The artifact to draft with, None where the wished drafter needs none."""
    if wishes.drafter in WITHOUT_HEADS:
        return None
    family, vocabulary = wishes.family, tokenizer.hash
    return find_heads(heads, source, model_path=resolved.path, drafter=family, tokenizer_hash=vocabulary)


def _opened(resolved: ResolvedModel, wishes: RuntimeWishes) -> tuple[WeightSource, Callable[[WeightSource], Runtime]]:
    """The weights, and what makes a runtime of them or of the same with another rope: heads that do not fit are told
    before minutes of building."""
    if wishes.name == "onnx":
        return open_weights(resolved), lambda source: load_onnx(
            source,
            weights=wishes.weights,
            threads=wishes.threads,
            max_rows=wishes.max_rows,
            max_context=wishes.max_context,
        )
    from medusakit.runtimes.torch.load import load_torch

    parts = load_torch(
        resolved,
        weights=wishes.weights,
        threads=wishes.threads,
        max_rows=wishes.max_rows,
        max_context=wishes.max_context,
        device_map=wishes.device_map,
    )
    return parts.source, lambda source: parts.runtime


def _aligned(source: WeightSource, artifact: Artifact | None, runtime: RuntimeWishes) -> WeightSource:
    if runtime.name != "onnx":
        raise UsageError("the rope of the heads can only be taken by the onnx runtime", hint="--runtime onnx")
    return aligned(source, artifact)
